"""What a pod's container said, asked of the cloud: the only word of a pod that can't find home."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from tests.integration.clouds import runpod_rig, vast_rig

SCRIPT = "echo 'start: no code from the gateway'; sleep 600"
SAID = "no code from the gateway"


def until(said: Callable[[], str]) -> str:
    """What is said in the end: a process of the emulator needs some moments to say it."""
    deadline = time.monotonic() + 20
    while SAID not in (text := said()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return text


def test_runpod_streams_the_log_and_a_silent_stream_ends_the_reading() -> None:
    """H56; a pod that is not there has said nothing."""
    with runpod_rig.rented() as one:
        pod = one.cloud.create(runpod_rig.order(start_script=SCRIPT))
        one.emulator.advance(600)
        assert SAID in until(lambda: one.cloud.log(pod))
        assert one.cloud.log(replace(pod, id="gone")) == ""


def test_vast_uploads_the_log_a_little_later() -> None:
    """H56; while the container has said nothing its host is asked."""
    with vast_rig.rented() as one:
        pod = one.cloud.create(vast_rig.order(start_script=SCRIPT))
        one.emulator.advance(600)
        assert SAID in until(lambda: one.cloud.log(pod))
