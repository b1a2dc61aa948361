"""What an attempt reports, and what it has learnt from the attempts before it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pod import events, ledger
from pod.reporter import Reporter, number
from pod.rundir import RunDir
from pod.rungs import Factors, Skip
from pod.spikes import Alarm
from pod.window import Row
from tests.checkpoints import safetensors


def make_reporter(path: Path, *, attempt: int = 1, writes: bool = True, **fields: Any) -> Reporter:
    return Reporter(RunDir(path), {"attempt": attempt, **fields}, writes=writes)


def take(reporter: Reporter, step: int, loss: float) -> Alarm | None:
    return reporter.step(step, loss=loss, grad_norm=1.0, lr=0.001, epoch=0.1)


def written(path: Path, kind: str) -> list[events.Event]:
    return [event for event in events.read(RunDir(path).events)[0] if event["kind"] == kind]


def smooth(step: int) -> float:
    """A loss curve that falls and wobbles."""
    return 2.0 + math.exp(-step / 20) + 0.02 * math.sin(step)


def test_a_jump_raises_the_alarm_and_the_event_names_its_onset(tmp_path: Path) -> None:
    """The alarm is in the file before anybody raises anything."""
    reporter = make_reporter(tmp_path)
    assert not any(take(reporter, step, smooth(step)) for step in range(1, 61))
    alarms = [alarm for step in range(61, 75) if (alarm := take(reporter, step, 9.0))]
    assert alarms
    assert reporter.alarm(alarms[0]) == 61
    (event,) = written(tmp_path, "alarm")
    assert (event["onset_step"], event["alarm"]) == (61, "jump")
    assert len(written(tmp_path, "step")) == 74


@pytest.mark.parametrize(
    ("logged", "logging_steps", "onset"),
    [((10, 20, 30), 10, 21), ((28, 29, 30), 1, 30), ((10, 30), 1, 30), ((29, 30), 10, 30)],
)
def test_an_entry_stands_for_all_steps_since_the_one_before(
    tmp_path: Path, logged: tuple[int, ...], logging_steps: int, onset: int
) -> None:
    """With logging_steps 10 the trouble of entry 30 may have begun at 21, before checkpoint-25."""
    reporter = make_reporter(tmp_path)
    for step in logged:
        take(reporter, step, 2.0)
    alarm = Alarm(onset_step=30, step=30, kind="jump", reason="up")
    assert reporter.alarm(alarm, logging_steps=logging_steps) == onset


def test_a_later_attempt_is_warm_and_does_not_fire_on_old_history(tmp_path: Path) -> None:
    """It knows the curve up to its checkpoint: to go on with it is fine, a jump is not."""
    first = make_reporter(tmp_path)
    for step in range(1, 61):
        take(first, step, smooth(step))
    for step in range(61, 75):
        take(first, step, 9.0)
    good = make_reporter(tmp_path, attempt=2, from_checkpoint=60)
    assert not any(take(good, step, smooth(step)) for step in range(61, 100))
    bad = make_reporter(tmp_path, attempt=3, from_checkpoint=60)
    assert any(take(bad, step, 9.0) for step in range(61, 75))


@pytest.mark.parametrize("settings", [{"guard": False}, {"spike": {"enabled": False}}])
def test_the_guard_can_be_switched_off(tmp_path: Path, settings: dict[str, Any]) -> None:
    """Everything is still reported."""
    reporter = make_reporter(tmp_path, **settings)
    assert not any(take(reporter, step, 2.0 if step < 50 else 90.0) for step in range(1, 90))
    assert len(written(tmp_path, "step")) == 89


def test_spike_settings_reach_the_detector(tmp_path: Path) -> None:
    """Keys that the task file leaves out keep the detector's own defaults."""
    reporter = make_reporter(tmp_path, spike={"threshold": 5.0, "threshold_patience": None})
    assert [bool(take(reporter, step, 6.0)) for step in (1, 2, 3)] == [False, False, True]


def test_other_ranks_think_but_do_not_write(tmp_path: Path) -> None:
    """All ranks come to the same alarm; the file has one writer."""
    reporter = make_reporter(tmp_path, writes=False)
    for step in range(1, 61):
        take(reporter, step, smooth(step))
    assert any(take(reporter, step, 9.0) for step in range(61, 75))
    reporter.save(60)
    assert not RunDir(tmp_path).events.exists()


def test_a_save_is_reported_recorded_and_kept(tmp_path: Path) -> None:
    """Health is what the detector thinks at that moment."""
    run_dir = RunDir(tmp_path)
    reporter = make_reporter(tmp_path, rung={"kind": "replay"})
    reporter.changed(0, Factors(0.5, 1.0), None)
    for step in range(1, 41):
        take(reporter, step, smooth(step))
        if step % 20 == 0:
            folder = run_dir.out / f"checkpoint-{step}"
            folder.mkdir(parents=True)
            (folder / "trainer_state.json").write_text("{}")
            (folder / "adapter_model.safetensors").write_bytes(safetensors())
            reporter.save(step)
    reporter.recorder.close()
    assert [(e["checkpoint"], e["health"]) for e in written(tmp_path, "save")] == [
        ("checkpoint-20", "healthy"),
        ("checkpoint-40", "healthy"),
    ]
    factors = {"learning_rate": 0.5, "weight_decay": 1.0}
    assert [(c.step, c.health, c.rung, c.factors) for c in ledger.checkpoints(run_dir)] == [
        (20, "healthy", {"kind": "replay"}, factors),
        (40, "healthy", {"kind": "replay"}, factors),
    ]


@pytest.mark.parametrize(
    ("value", "expected"), [(1, 1.0), ("1.5", 1.5), (None, None), ("n/a", None), ("inf", math.inf)]
)
def test_log_values_become_numbers(value: object, expected: float | None) -> None:
    """Trainers log numbers, texts of numbers, and words."""
    assert number(value) == expected


def test_what_a_rung_did_is_told_and_recorded(tmp_path: Path) -> None:
    """The real values of the optimizer go into the event, the factors into the ledger."""
    skip = {"kind": "skip", "first": 21, "last": 24}
    reporter = make_reporter(tmp_path, attempt=2, from_checkpoint=20, rung=skip)
    reporter.changed(24, Factors(0.5), Skip(21, 24), moments="keep", learning_rate=[0.1])
    reporter.changed(25, Factors(0.5), None)
    done, undone = written(tmp_path, "decision")
    assert (done["cmd"], done["done"], done["first"], done["last"]) == ("skip", True, 21, 24)
    assert (done["learning_rate"], done["moments"]) == ([0.1], "keep")
    assert done["factors"] == {"learning_rate": 0.5, "weight_decay": 1.0}
    assert (undone["done"], "first" in undone) == (False, False)
    assert reporter.recorder.factors == done["factors"]
    make_reporter(tmp_path).changed(0, Factors(), None)
    assert len(written(tmp_path, "decision")) == 2, "a first attempt changes nothing"


def test_a_post_mortem_names_the_window_of_the_alarm_before(tmp_path: Path) -> None:
    """The next attempt, in the same process or a new one, knows it from the events."""
    first = make_reporter(tmp_path, warm_seconds=300)
    take(first, 20, 2.0)
    first.alarm(Alarm(onset_step=20, step=21, kind="jump", reason="up"), waiting=True)
    assert written(tmp_path, "alarm")[0]["waiting"] is True
    second = make_reporter(tmp_path, attempt=2)
    assert (second.window, second.warm_seconds) == (first.own_window(), 0.0)
    assert second.window is not None
    second.postmortem(second.window, [Row(step=20, index=7, loss=9.5, text="ab", tokens=2)])
    (event,) = written(tmp_path, "postmortem")
    assert (event["attempt"], event["of_attempt"], event["step"]) == (2, 1, 21)
    assert (event["first"], event["last"], event["lr"], event["grad_norm"]) == (19, 21, 0.001, 1.0)
    assert event["rows"] == [{"step": 20, "index": 7, "loss": 9.5, "text": "ab", "tokens": 2}]
    assert make_reporter(tmp_path, attempt=3).window is None


def test_a_pace_that_the_trainer_does_not_tell_is_no_zero(tmp_path: Path) -> None:
    """axolotl tells none at the first entry, and none at all with `include_tkps: false`."""
    reporter = make_reporter(tmp_path)
    take(reporter, 1, 2.0)
    reporter.step(2, loss=2.0, grad_norm=1.0, lr=0.001, epoch=0.1, tokens_per_second=512.5)
    first, second = written(tmp_path, "step")
    assert "tokens_per_second" not in first
    assert second["tokens_per_second"] == 512.5
