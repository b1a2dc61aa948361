"""The table of what keeps a pod from being rented or from coming up; see runner.causes.cause.

The texts are those of our own errors, of container runtimes and registries, and of both clouds.
"""

from __future__ import annotations

from runner.causes.cause import Cause

PODS: tuple[Cause, ...] = (
    Cause(
        "out of funds",
        "Add credit to the cloud's account; then `axolotl-runner resume`.",
        (r"want of money", r"lacks credit|[Ii]nsufficient (credit|funds|balance)"),
        final=True,
    ),
    Cause(
        "cloud key refused",
        "Set RUNPOD_API_KEY or VAST_API_KEY on the control side to a key that may create and "
        "end pods.",
        (
            r"refuses the API key",
            r"Invalid user key",
        ),
        final=True,
    ),
    Cause(
        "image pull limit",
        "Name a `runner.registry` login, since the registry limits pulls without one; or try "
        "again later.",
        (
            r"toomanyrequests",
            r"pull rate limit",
        ),
    ),
    Cause(
        "image",
        "Correct `runner.image`: the registry does not give it; a private one needs "
        "`runner.registry`.",
        (
            r"manifest( for \S+)? (unknown|not found)",
            r"pull access denied|repository does not exist",
            r"unauthorized: (authentication|access)",
            r"no such image|[Ii]mage not found|invalid reference format",
            r"exec format error|no matching manifest for",
            r"executable file not found|no such file or directory: unknown",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "no way to the gateway",
        "See that AXR_GATEWAY_URL is reachable from outside and leads to this control side "
        "(`axolotl-runner serve`).",
        (
            r"no code from the gateway",
            r"urllib\.error\.(HTTPError|URLError)",
            r"Failed to reach API|All connection attempts failed|httpx\.Connect(Error|Timeout)",
            r"not open to pods|a token is needed that holds",
            r"for url '?https?://\S+/api/",
        ),
    ),
    Cause(
        "no capacity",
        "Name more kinds in `gpu:` or more clouds in `cloud:`, or raise `max_price_per_hour`.",
        (
            r"no longer any instances|[Nn]o instances|no_such_ask|all (full|taken)",
            r"shows no free machine|no offer|costs .* more than max_price_per_hour",
            r"the bid does not win|does not have the resources|not enough free GPUs",
        ),
    ),
    Cause(
        "pod did not start",
        "The machines were dead or slow: name another `gpu:` or cloud, or a smaller "
        "`runner.image`.",
        (
            r"did not start",
            r"no worker on the pod took",
        ),
        second_hand=True,
    ),
    Cause(
        "entry script",
        "Correct `entry:`; its output is in entry.log (`axolotl-runner logs RUN`).",
        (r"^`entry` (ended|did not end)",),
        final=True,
    ),
)
