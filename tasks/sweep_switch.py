"""The switch of the sweep's schedule: on before a pod is created, off when none is left."""

from __future__ import annotations

from functools import partial

from tasks.api import api, write

DEPLOYMENT = "sweep/sweep"


def switch_sweep_on() -> None:
    """Make the sweep run each minute."""
    _set_active(True)


def switch_sweep_off() -> None:
    """Stop the sweep's schedule."""
    _set_active(False)


def _set_active(active: bool) -> None:
    prefect = api()
    deployment = prefect.read_deployment_by_name(DEPLOYMENT)
    for schedule in deployment.schedules:
        if schedule.active != active:
            write(
                partial(
                    prefect.update_deployment_schedule, deployment.id, schedule.id, active=active
                )
            )
