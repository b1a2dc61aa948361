"""How many calls a minute the looks at rented pods cost, counted at RunPod's emulator."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from blocks import shared_look
from tasks.monitor import LOOK_EVERY_RENTED
from tests.integration.clouds.runpod_rig import A5000, order, rented

MINUTES = 5


def calls_per_minute(pods: int) -> float:
    """With so many parents that look at their pods, each in its own turn."""
    with (
        rented(stock={A5000: {"SECURE": pods}}, balance=1e6) as world,
        TemporaryDirectory() as folder,
    ):
        made = [world.cloud.create(order(run=f"run-{number}")) for number in range(pods)]
        clock = world.emulator.clock
        before = len(world.emulator.state["requests"])
        turns = round(MINUTES * 60 / LOOK_EVERY_RENTED)
        for _ in range(turns):
            for pod in made:
                shared_look.status_of(pod, world.cloud, now=clock.now, folder=Path(folder))
                world.emulator.advance(LOOK_EVERY_RENTED / pods)
        return (len(world.emulator.state["requests"]) - before) / MINUTES
