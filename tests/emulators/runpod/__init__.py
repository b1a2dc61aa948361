"""A strict local RunPod that really runs pods: `python -m tests.emulators.runpod --port N`.

In a test: `with Emulator() as cloud: …` with `cloud.url` (REST v2), `cloud.origin` (for GraphQL),
`cloud.key`, `cloud.state`, `cloud.set(**switches)`, `cloud.advance(seconds)`, `cloud.lines(pod)`.
From outside: GET /_state, POST /_faults {switch: value}, POST /_clock {"advance": seconds}.

Every REST request and answer is held against the published specification when that is there
(`state["validated"]`). A request that violates it gets 422; `state["violations"]` lists those
("request"), broken rules that a schema cannot express ("rule"), and mistakes of the emulator itself
("response", "emulator"). Unknown query parameters are ignored, as RunPod ignores them.

What a pod is here: see containers.py (command, environment, path of the volume), lifecycle.py
(boots, restarts), folders.py, billing.py (rounding). A container that ends takes all processes of
its pod along and is started again on an empty disk. A pod's own key may read and delete its pod.

Switches (POST /_faults merges them; {"reset": true} clears all). "n" acts n times, true always,
{gpu id: n | true} for one GPU; seconds are those of the emulator's clock unless called real.

create
  create_status         status, or {status, times, retry_after}: refused so before anything is made
  create_400_capacity   n | true | {gpu: …}: 400 with `capacity_text`, whatever the stock
  capacity_text         standard | disk | machine | spot | generic, any text, or a list to cycle
  create_5xx_after      n: the pod is made, then the answer is 500
  create_timeout_after  n: the pod is made, then the connection ends without an answer,
  create_timeout_hold     after that many real seconds (0)
  stock                 {gpu: {"SECURE": n, "COMMUNITY": n | {data center: n}}} GPUs
  stale_high            true | [gpu]: the catalog says HIGH and every create is refused
  cuda                  {gpu: ["12.4"]}: the CUDA versions of its hosts
  templates             {id: {image, args, env, disk, ports, mounts, …}}
lifecycle (the first four are fixed when a pod is made)
  boot_seconds 0.1, image_pull_seconds 0.1, never_ready n, empty_machine n (no host: ids are null)
  restart_seconds 0.2   between the end of a container and its next start
  grace_seconds 0       real seconds from SIGTERM (main process) to SIGKILL (all)
  runtime_null_for      seconds of RUNNING in which `runtime` is still null
  telemetry_null        `runtime` lacks gpus, cpu and memory
  telemetry             {gpu, gpu_memory, cpu, memory} in percent
  resume_full n, zero_gpus n    what a start of a stopped pod meets
  ignore_timers         GraphQL's stopAfter and terminateAfter are taken and not acted upon
  keep_folders          an ended pod's folders stay
  host_lost_mode        "stale" (the pod stays as it was last seen, and is billed) or "404"
visibility
  visibility_lag        seconds in which a new pod is missing: list, GET and DELETE (404)
  delete_lag            seconds in which an ended pod is still listed, as it was last seen or
  delete_lag_status       with this status (TERMINATED)
  pages                 page size: the list obeys `limit` and `cursor` and has `pagination`
any call
  status                {path: regex, method, status, times, retry_after, hang, detail} or a list
                        of them; `hang` real seconds before the answer (status 0: the right one)
  list_status, delete_status    status, or {status, times, retry_after}: GET /v2/pods, DELETE
  graphql_410           true (text) | "json"
  cloudflare true       refuses the agent of Python's urllib, as the edge does
keys and money
  scoped_key_v2 true    false: REST v2 answers 403 to a pod's own key; GraphQL still knows it
  key_scope_403         true | [regex of "METHOD path"]: the account's key lacks the right
  billing_lag           seconds: the billing job runs that often
actions, done once
  balance USD · host_lost id | "all" · kill_pod id (by its owner, elsewhere) · restart_container id

Not covered: spot pods, CPU pods, clusters, serverless, registries, rate limits by count, TLS, and
what the modules say of themselves. When the emulator is killed by SIGKILL its pods live on until
another one starts with the same --home.
"""

from tests.emulators.clock import Clock
from tests.emulators.runpod.emulator import KEY, Emulator

__all__ = ["KEY", "Clock", "Emulator"]
