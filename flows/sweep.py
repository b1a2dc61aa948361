"""The periodic look at all pods: dead parents are revived, pods without a living run are given
back.
"""

from __future__ import annotations

from prefect import flow

from deployments.revive import revive_parents
from tasks.sweeping import give_back_ownerless, list_pods, switch_sweep_off, switch_sweep_on


@flow(name="sweep")
def sweep() -> int:
    """Look at every pod of ours on every cloud; switch the schedule off when none is left."""
    revive_parents()
    give_back_ownerless(list_pods())
    if not list_pods():
        switch_sweep_off()
        # A run that switched the sweep on between the two lines above has created its pod by now or
        # creates it after this look, with the schedule on again.
        if list_pods():
            switch_sweep_on()
    return len(list_pods())
