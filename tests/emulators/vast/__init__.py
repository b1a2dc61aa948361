"""A strict local Vast.ai that really runs instances: `python -m tests.emulators.vast --port N`.

In a test: `with Emulator() as cloud: …` with `cloud.url` (the SDK's server_url), `cloud.key`,
`cloud.state`, `cloud.set(**switches)`, `cloud.advance(seconds)`, `cloud.lines(pod)`.
From outside: GET /_state, POST /_faults {switch: value}, POST /_clock {"advance": seconds}.

Requests and successful answers are held against the published specifications when these are there
(`state["validated"]`; contract.py says where they are not followed). `state["violations"]` lists
requests that break them ("request") or a documented limit ("rule"), and mistakes of the emulator
itself ("response", "emulator"). Both prefixes are answered, with and without a slash at the end.

What an instance is here: see lifecycle.py; its command orders.py, its variables environment.py
(/workspace is a folder on its disk). Its processes are those with its CONTAINER_ID; a container
that ends is started again on the same disk. A stop keeps the disk, a destroy ends everything.
The market: see market.py. Ids of machines and offers are fixed (offer = machine, size, first GPU);
a bid that no longer wins is stopped at once, as a stop of the owner's looks, and comes back by
itself when it wins again.

Switches (POST /_faults merges them; {"reset": true} clears all). "n" acts n times, true always,
{gpu name: n | true} for one GPU; seconds are those of the emulator's clock unless called real.

create
  create_status         status, or {status, times, retry_after, detail}: refused so before anything
                        is made (status 200: success false)
  create_5xx_after      n: made, then the answer is `create_5xx` (502)
  create_timeout_after  n: made, then no answer, after `create_timeout_hold` real seconds (0)
  create_fails_with_contract  n: made but stopped, then 400 with new_contract
  create_false          n: HTTP 200 with success false, nothing made
  create_ghost          n: success, and the instance never appears (but costs its storage)
  gone_status           400 (as seen live) | 404 | 410: an offer that is gone
  low_bid               leaves (400 with new_contract) | waits (200, stopped) | refused (400):
                        a bid that does not win; with cancel_unavail it is always 410
  ignore_cancel_unavail   it is taken and not heeded
  no_credit             n: "Your account lacks credit"
  templates             {hash: {image, env, onstart, …}}
the market
  machines              {id: {field: value} | null}: changes, adds (fields of Machine), removes
  market_price          {machine id | gpu name: USD per GPU and hour}: what a bid must reach
  snatch                n | true | {gpu: …}: a tenant takes the offer between search and rent
  snatch_probability    0 to 1, of each rent; from a fixed seed
lifecycle
  provision_seconds 0.1, created_seconds 0.05, image_pull_seconds 0.1, restart_seconds 0.2
  grace_seconds 0       real seconds from SIGTERM to SIGKILL at a stop; an outbid has none
  stuck                 "null" | "created" | "loading": where the next `stuck_times` (n) stay
  pull_error n          loading for ever, with an error in status_msg
  start_scheduling n    a start of a stopped instance waits for ever
  telemetry_null, telemetry {gpu, cpu (percent), memory (GB)}
  image_gb              GB that the first start downloads, at the machine's price
  keep_folders          an ended instance's folders stay
visibility
  visibility_lag        seconds in which calls do not know a new instance
  destroy_lag           seconds in which a destroyed one is still shown
  missing_404           GET of an unknown instance is 404, not {"instances": null}
  missing_destroy_200   DELETE of one is HTTP 200 with success false
  no_start_date         instances lack start_date and extra_env, over which the SDK falls
  page_size 25
any call
  status                {path: regex, method, status, times, retry_after, hang, detail} or a list;
                        status 200 is success false, 0 the right answer after `hang` real seconds
  list_status, destroy_status   status, or {status, times, retry_after, detail}
  gaps true             the published least time between calls; false, or {kind: seconds}
                        (create, destroy, get, list, change, bid)
  limit_form            text | detail | json: what a 429 looks like; limit_retry_after: its header
  search_quota          searches left for today, then 429 search_quota_exceeded
  two_factor, search_key_404, scoped_key true (false: the instance's own key may do nothing)
  logs_404 1            how often the address of uploaded logs is 404 first
actions, done once
  outbid id             a rival bids a quarter more for that machine: the instance is stopped
  rival_leaves machine id | "all"   · take offer id (by another tenant) · balance USD
  kill_pod id, stop_pod id (by its owner, in the console) · restart_container id
  host_lost id (offline) · set_status {id, status: exited | offline | unknown | frozen}
  traffic {id, down: GB, up: GB}    what it is billed for

Billing: the GPUs while the container runs, not while it loads; the disk from create to destroy,
not while the host is offline; traffic by `image_gb` and `traffic` alone. Without credit all stop.
Not covered: volumes, serverless, bulk create, `execute`, price rises, ssh, TLS.
"""

from tests.emulators.clock import Clock
from tests.emulators.vast.emulator import KEY, Emulator

__all__ = ["KEY", "Clock", "Emulator"]
