"""What a pod alone holds is brought to safety before the pod may go; else its guard gets it.

Where a rescue fails, the follower leaves the word `axr.only_copy` on its flow run, as the guard
does when its own fails. A parent that reads it ends its run without ending the pod: the lease of
the pod lapses, and the guard tries until the pod's deadline.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from blocks.clouds import is_rented
from blocks.logs import log
from pod.rundir import RunDir
from pod.saving import save_only_copy
from tasks.standing import children, facts_of, leave_words, remember
from tasks.storing import start_mirror, wait_until_stored

STORE_WITHIN = 900.0  # seconds; 80 GB need a quarter of an hour


def bring_to_safety(folder: RunDir, run: str, environment: Mapping[str, str] = os.environ) -> str:
    """On the pod: store what was trained, as far as it would end with this pod; where it is then.

    NotSaved with the reason when it is on this pod alone.
    """
    if is_rented(environment.get("AXR_CLOUD", "local")):
        return f"saved: {save_only_copy(folder, run, environment, within=STORE_WITHIN)}"
    # Of a local pod the store has a copy: the run's own folder stays.
    start_mirror(folder, environment)
    stored = wait_until_stored(folder, STORE_WITHIN)
    return f"the model is in {folder.path}{', and its checkpoint in the store' if stored else ''}"


def tell_only_copy(flow_run: str, why: str) -> None:
    """On the pod: say that this pod holds the only copy of the model, and why."""
    log().critical("The model is on this pod alone: %s", why)
    leave_words(flow_run, {"only_copy": why})


def is_only_copy(run_id: str) -> str | None:
    """In the parent: why a pod of this run holds the only copy of its model; None when none does.

    The last word counts: a guard that has saved it takes the word back.
    """
    said = [facts_of(child).get("only_copy") for child in children(run_id)]
    return next((why for why in reversed(said) if why), None)


def leave_to_guard(run_id: str) -> None:
    """In place of a teardown: nobody renews the pod's lease, and its guard does the rest."""
    remember(run_id, {"left_to_guard": "yes"})
