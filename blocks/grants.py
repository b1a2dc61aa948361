"""Secrets that a run is given by name: what the task file asks for as `NAME:` without a value.

Only what was meant for runs can be asked for: AXR_SECRET_<NAME> in the environment of the control
side, else the Prefect Secret block `axr-<name>`. So a pushed task file can't reach for whatever
else the control side knows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from prefect.blocks.system import Secret
from prefect.settings import PREFECT_API_URL

from runner.secrets import GRANT, learn
from runner.task_secrets import NEVER_ON_A_POD, block_name


def _block(name: str) -> str | None:
    """The value of a Secret block, None when there is none."""
    if not PREFECT_API_URL.value():
        return None  # asking for a block would start a server for the moment
    try:
        return str(Secret.load(name, _sync=True).get())  # type: ignore[call-arg, union-attr]
    except ValueError:  # what Prefect raises for a block that does not exist
        return None


def granted(
    names: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    block: Callable[[str], str | None] = _block,
) -> dict[str, str]:
    """The secrets among `names` that were meant for runs; the others are left out. They are
    scrubbed from now on.
    """
    found = {}
    for name in names:
        value = environment.get(GRANT + name) or block(block_name(name))
        if value and name not in NEVER_ON_A_POD:
            found[name] = value
    learn(found)
    return found
