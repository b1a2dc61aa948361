"""The periodic look at all pods: dead parents are revived or ended, pods that nobody needs are
given back, idle ones are told and ended.
"""

from __future__ import annotations

from prefect import flow

from blocks.logs import log
from deployments.giving_up import dead_parents, end_unrevivable
from deployments.revive import revive_parents
from runner.home import home
from runner.locks import LockHeld, hold
from tasks.lost_children import crash_lost_children
from tasks.sighting import list_everywhere
from tasks.sweep_switch import switch_sweep_off, switch_sweep_on
from tasks.sweeping import own_pods, sweep_pods


@flow(name="sweep")
def sweep() -> int:
    """Look at every pod of ours on every cloud; switch the schedule off when none is left."""
    try:
        with hold(home().locks / "sweep.lock"):
            return look_around()
    except LockHeld:
        log().info("Another sweep is at work")
        return 0


def look_around() -> int:
    """One sweep, as the only one; the number of pods that it saw."""
    revive_parents()
    end_unrevivable()
    listing = list_everywhere()
    sweep_pods(listing)
    crash_lost_children(listing)
    if not is_needed():
        switch_sweep_off()
        # A run that switched the sweep on between the two lines above has created its pod by now or
        # creates it after this look, with the schedule on again.
        if is_needed():
            switch_sweep_on()
    return len(listing.pods)


def is_needed() -> bool:
    """Whether there is a pod of ours, a cloud that can't be seen, or a dead run to be ended."""
    listing = list_everywhere()
    return bool(listing.failed or own_pods(listing) or dead_parents())
