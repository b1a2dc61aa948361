"""Each command in control.json is given out once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pod.commands import LOOK_EVERY, Commands
from pod.rundir import write_json


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def write(path: Path, seq: int, **fields: Any) -> None:
    write_json(path, {"seq": seq, "cmd": "stop", **fields})


def test_a_command_is_given_out_once_and_not_before_it_is_time_to_look(tmp_path: Path) -> None:
    """A stat on a network disk costs a millisecond, so not every step looks."""
    control, clock = tmp_path / "control.json", Clock()
    commands = Commands(control, clock=clock)
    assert commands.take() is None
    write(control, 1)
    assert commands.take() is None
    clock.now += LOOK_EVERY
    assert commands.take() == {"seq": 1, "cmd": "stop"}
    clock.now += LOOK_EVERY
    assert commands.take() is None


def test_a_waiting_trainer_looks_at_once(tmp_path: Path) -> None:
    """Nothing else is to be done then; an older or repeated number is no new command."""
    control = tmp_path / "control.json"
    commands = Commands(control, clock=Clock())
    write(control, 3)
    assert commands.take(at_once=True) == {"seq": 3, "cmd": "stop"}
    for seq in (2, 3):
        write(control, seq, again=True)
        assert commands.take(at_once=True) is None
    write(control, 4)
    assert commands.take(at_once=True) is not None
