"""How an attempt ended, from events, files and the log; a row of the table for each case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from pod import logtail
from pod.events import Event
from pod.verdict import Verdict, decided_at, judge
from runner.errors import Outcome

Fields = dict[str, Any]

TRACEBACK = "Traceback (most recent call last):\n  File 'train.py', line 3, in main\n"
STEP_LINE = "{'loss': '1.2', 'grad_norm': '0.9', 'epoch': '0.1'}\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
DISK_FULL = "OSError: [Errno 28] No space left on device\n"
WATCHDOG = "[WARNING] Loss is too high, stopping training (loss_watchdog_threshold)\n"
PACKING = "ValueError: eval split is too small for sample_packing. Set eval_sample_packing: false\n"
LAUNCHER = (
    "subprocess.CalledProcessError: Command '['accelerate']' returned non-zero exit status 1.\n"
)
NOT_LOADED = "[ERROR] Failed to load plugin: pod.plugin.RunnerPlugin\n"


def event(kind: str, step: int = 0, **fields: Any) -> Event:
    return {"kind": kind, "t": 100.0 + step, "attempt": 1, "step": step, **fields}


def armed(planned: int = 100) -> Event:
    return event("armed", planned_steps=planned, logging_steps=1, save_steps=5)


def steps(
    last: int, *, loss: float = 1.5, grad_norm: float | None = 0.9, first: int = 1
) -> list[Event]:
    return [event("step", n, loss=loss, grad_norm=grad_norm) for n in range(first, last + 1)]


def end(step: int = 100, *, files: tuple[str, ...] = ("config.json",), **fields: Any) -> Event:
    flags = {"finished": step == 100, "stopped": False, "early": False, **fields}
    return event("end", step, planned_steps=100, files=list(files), final_loss=1.5, **flags)


def alarm(kind: str) -> Event:
    return event("alarm", 43, onset_step=41, alarm=kind, reason="the loss rose")


def error(name: str, message: str, *, step: int, cuda_oom: bool = False) -> Event:
    return event("error", step, error=name, message=message, cuda_oom=cuda_oom)


@dataclass(frozen=True)
class Case:
    """What is known of an attempt, and what is to be said of it."""

    name: str
    events: list[Event]
    outcome: str
    reason: str
    exit_code: int | None = 0
    log: str = ""
    note: str | None = None


def hang(step: int, phase: str = "training") -> Event:
    reason = f"no step for 612 s (usual: 2 s) at step {step} while {phase}"
    return event("hang", step, phase=phase, seconds=612.0, usual=2.0, idle=False, reason=reason)


TRAINED = [armed(), *steps(100)]
CUT = [armed(), *steps(40)]

CASES = [
    Case("complete", [*TRAINED, end()], "completed", "all steps trained"),
    Case("complete, follower is not the parent", [*TRAINED, end()], "completed", "all", None),
    Case(
        "H31 tracker hung, we ended it",
        [*TRAINED, end()],
        "completed",
        "all steps trained",
        -9,
        note="the trainer left with code -9 after its work was done",
    ),
    Case(
        "H37 clean-up failed after the last step",
        [*TRAINED, end(), error("FileNotFoundError", "/old/checkpoint-50", step=100)],
        "completed",
        "all steps trained",
        1,
        note="the trainer left with code 1 after its work was done",
    ),
    Case(
        "early stopping is a good end",
        [*CUT, end(40, early=True)],
        "completed",
        "stopped early at step 40 of 100",
        note="early stopping ended the run before its last step",
    ),
    Case("end without weights", [*TRAINED, end(files=())], "crash", "it wrote no weights"),
    Case(
        "end with weights that are gone",
        [*TRAINED, end(files=("model.safetensors",))],
        "crash",
        "model.safetensors is missing or cut off",
    ),
    Case("H26 interrupted", CUT, "crash", "stopped at step 40 of 100 without finishing"),
    Case("H26 with an end", [*CUT, end(40)], "crash", "stopped at step 40 of 100 without"),
    Case("H27 axolotl's watchdog", [*CUT, end(40)], "loss_spike", "watchdog", log=WATCHDOG),
    Case("H27 without our end", CUT, "loss_spike", "at step 40 of 100", log=WATCHDOG),
    Case("alarm: jump", [*CUT, alarm("jump")], "loss_spike", "the loss rose (from step 41", 1),
    Case("alarm: drift", [*CUT, alarm("drift")], "loss_spike", "certain at step 43", 1),
    Case("alarm: nonfinite", [*CUT, alarm("nonfinite")], "nonfinite", "the loss rose", 1),
    Case("alarm: collapse", [*CUT, alarm("collapse")], "collapse", "the loss rose", 1),
    Case(
        "an alarm wins over what the traceback says",
        [*CUT, alarm("jump")],
        "loss_spike",
        "the loss rose",
        1,
        log=OOM,
    ),
    Case(
        "H29 every loss is NaN",
        [armed(), *steps(100, loss=math.nan, grad_norm=math.nan), end()],
        "nonfinite",
        "not finite",
    ),
    Case(
        "H29 only the gradient shows it",
        [armed(), *steps(95), *steps(100, first=96, grad_norm=math.nan), end()],
        "nonfinite",
        "not finite",
    ),
    Case(
        "H30 zero to the end",
        [armed(), *steps(1, loss=2.1), *steps(100, first=2, loss=0.0, grad_norm=0.0), end()],
        "collapse",
        "exactly 0",
    ),
    Case(
        "H30 zero with a NaN gradient",
        [armed(), *steps(100, loss=0.0, grad_norm=math.nan), end()],
        "nonfinite",
        "not finite",
    ),
    Case("H30 a tiny loss is fine", [armed(), *steps(100, loss=0.0003), end()], "completed", "all"),
    Case(
        "zero with a live gradient is normal for RL",
        [armed(), *steps(100, loss=0.0, grad_norm=0.4), end()],
        "completed",
        "all steps trained",
    ),
    Case(
        "a callback of the user's that can't be used",
        [error("UserCallbackError", "runner.callbacks: a.B: a can't be imported: x\ny", step=0)],
        "config_error",
        "runner.callbacks: a.B: a can't be imported: x",
        1,
    ),
    Case(
        "another rank's word for it",
        [],
        "config_error",
        "runner.callbacks: a.B: a.py has no B",
        1,
        log=TRACEBACK
        + "pod.user_callbacks.UserCallbackError: runner.callbacks: a.B: a.py has no B\n",
    ),
    Case(
        "a callback of the user's that fails",
        [*CUT, error("ValueError", "runner.callbacks: a.B.on_step_end: boom", step=40)],
        "crash",
        "ValueError: runner.callbacks: a.B.on_step_end: boom (at step 40 of 100)",
        1,
    ),
    Case(
        "stopped on request",
        [*CUT, event("decision", 40, seq=1, cmd="stop"), end(40, stopped=True)],
        "cancelled",
        "stopped on request at step 40 of 100",
    ),
    Case(
        "killed while it saved the stop",
        [*CUT, event("decision", 40, seq=1, cmd="stop")],
        "cancelled",
        "stopped on request",
        -9,
    ),
    Case(
        "a stop at the last step is a complete run",
        [*TRAINED, event("decision", 100, seq=1, cmd="stop"), end(stopped=True)],
        "completed",
        "all steps trained",
    ),
    Case(
        "H32 killed at a step",
        CUT,
        "crash",
        "killed by the system at step 40 of 100, likely out of host memory",
        -9,
    ),
    Case("H32 killed, told by a shell", CUT, "crash", "likely out of host memory", 137),
    Case(
        "H32 killed after the last step",
        TRAINED,
        "crash",
        "killed by the system after the last step (100)",
        -9,
    ),
    Case(
        "H32 a rank was killed",
        CUT,
        "crash",
        "killed by the system",
        1,
        log="Signal 9 (SIGKILL) received by PID 12\n" + LAUNCHER,
    ),
    Case(
        "H32 vanished, nobody saw how",
        CUT,
        "crash",
        "vanished without a word at step 40 of 100",
        None,
    ),
    Case(
        "H33 out of GPU memory",
        [*CUT, error("OutOfMemoryError", "CUDA out of memory", step=41, cuda_oom=True)],
        "out_of_memory",
        "out of GPU memory at step 40 of 100",
        1,
    ),
    Case(
        "H33 on another rank",
        CUT,
        "out_of_memory",
        "out of GPU memory",
        1,
        log=TRACEBACK + OOM + LAUNCHER,
    ),
    Case(
        "H33 before the first step", [armed()], "out_of_memory", "before the first step", 1, log=OOM
    ),
    Case(
        "H41 disk full",
        [*CUT, error("OSError", "[Errno 28] No space left on device", step=40)],
        "crash",
        "disk full at step 40 of 100",
        1,
    ),
    Case("hang", [*CUT, hang(40)], "hang", "no step for 612 s (usual: 2 s) at step 40 while", -9),
    Case("hang, nobody saw the exit code", [*CUT, hang(40)], "hang", "at step 40 while", None),
    Case("H25 hang while loading", [hang(0, "loading")], "hang", "at step 0 while loading", -15),
    Case(
        "it moved again, after all", [*TRAINED, hang(90), end()], "completed", "all steps trained"
    ),
    Case("H41 hang on a full disk", [*CUT, hang(40)], "crash", "disk full", -9, log=DISK_FULL),
    Case("ranks hang for want of one", [*CUT, hang(40)], "out_of_memory", "GPU", -9, log=OOM),
    Case(
        "H08 refused before the first step",
        [],
        "crash",
        "ValueError: eval split is too small",
        1,
        log=TRACEBACK + PACKING + LAUNCHER,
    ),
    Case(
        "error in a step",
        [*CUT, error("RuntimeError", "shape mismatch\nmore", step=40)],
        "crash",
        "RuntimeError: shape mismatch (at step 40 of 100)",
        1,
    ),
    Case(
        "axolotl refuses the config",
        [error("ValidationError", "1 validation error for X\n  Value error, no\n  more", step=0)],
        "crash",
        "ValidationError: 1 validation error for X Value error, no more (before the first step)",
        1,
    ),
    Case(
        "error only in the log",
        CUT,
        "crash",
        "KeyError: 'labels' (at step 40 of 100)",
        None,
        log=TRACEBACK + "KeyError: 'labels'\n",
    ),
    Case(
        "plugin not loaded, trained all the same", [], "crash", "plugin not loaded", log=STEP_LINE
    ),
    Case(
        "plugin not loaded, said so",
        [],
        "crash",
        "plugin not loaded",
        1,
        log=NOT_LOADED + "ModuleNotFoundError: No module named 'pod'\n",
    ),
    Case("exit 0 with nothing at all", [], "crash", "plugin not loaded"),
    Case(
        "an exit code and nothing else",
        [armed()],
        "crash",
        "left with code 3 before the first step",
        3,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_evidence_decides(case: Case, tmp_path: Path) -> None:
    """Outcome, reason and note follow from what was found, whatever the exit code says."""
    (tmp_path / "config.json").write_text("{}")
    judged = judge_case(case, tmp_path)
    assert judged.outcome == case.outcome, judged
    assert judged.outcome in get_args(Outcome)
    assert case.reason in judged.reason
    assert "\n" not in judged.reason
    assert judged.note == case.note


def judge_case(case: Case, out: Path) -> Verdict:
    judged = judge(
        case.events,
        attempt=1,
        alive=False,
        exit_code=case.exit_code,
        log_tail="=== attempt 1 ===\n" + case.log,
        out=out,
    )
    assert judged is not None
    return judged


def verdict_of(
    events: list[Event], *, attempt: int = 1, alive: bool = False, log: str = ""
) -> Verdict | None:
    return judge(events, attempt=attempt, alive=alive, exit_code=1, log_tail=log, out=Path("/no"))


def test_a_hang_knows_its_step_between_two_log_entries() -> None:
    """With logging_steps 10 the events name step 40; loading is no step of this attempt."""
    judged = verdict_of([*CUT, hang(47)])
    assert judged is not None
    assert (judged.outcome, judged.last_step) == ("hang", 47)
    judged = verdict_of([armed(), hang(20, "loading")])
    assert judged is not None
    assert (judged.outcome, judged.last_step) == ("hang", None)


def test_a_living_trainer_has_no_verdict_yet() -> None:
    """Not even after its last word: it may still be writing."""
    assert verdict_of([*TRAINED, end()], alive=True) is None
    assert verdict_of([*CUT, alarm("jump")], alive=True) is None
    assert verdict_of([], alive=True, log="loading the model\n") is None


def test_an_alarm_that_waits_is_a_verdict_on_a_living_trainer() -> None:
    """It has ended this attempt, and goes on only for the next one."""
    judged = verdict_of([*CUT, {**alarm("jump"), "waiting": True}], alive=True)
    assert judged is not None
    assert judged.outcome == "loss_spike"
    assert verdict_of([*CUT, {**alarm("jump"), "waiting": False}], alive=True) is None


def test_a_living_trainer_without_our_plugin_is_judged_at_once() -> None:
    """Nothing guards it, so it must not go on."""
    judged = verdict_of([], alive=True, log="=== attempt 1 ===\n 1%|x| 1/99\r" + STEP_LINE)
    assert judged is not None
    assert judged.reason.startswith("plugin not loaded")
    assert verdict_of([armed()], alive=True, log=STEP_LINE) is None


def test_only_the_attempts_own_events_and_lines_count() -> None:
    """The alarm and the traceback of attempt 1 say nothing of attempt 2."""
    past = [*CUT, alarm("jump")]
    own = [{**armed(), "attempt": 2}, *({**e, "attempt": 2} for e in steps(50, first=41))]
    log = "=== attempt 1 ===\n" + OOM + "=== attempt 2 ===\nKeyError: 'x'\n"
    judged = verdict_of([*past, *own], attempt=2, log=log)
    assert judged is not None
    assert (judged.outcome, judged.reason) == ("crash", "KeyError: 'x' (at step 50 of 100)")
    assert (judged.first_step, judged.last_step, judged.alarm_step) == (41, 50, None)


def test_the_verdict_carries_steps_and_losses() -> None:
    """Onset and alarm come from the alarm; a non-finite loss is no final loss."""
    judged = verdict_of([*CUT, *steps(43, first=41, loss=math.inf), alarm("nonfinite")])
    assert judged is not None
    assert (judged.first_step, judged.last_step, judged.planned_steps) == (1, 43, 100)
    assert (judged.onset_step, judged.alarm_step, judged.final_loss) == (41, 43, None)


def test_without_an_alarm_the_onset_of_worthless_weights_is_found() -> None:
    """So that the way back leads before them."""
    judged = verdict_of([*CUT, *steps(60, first=41, loss=math.nan)])
    assert judged is not None
    assert (judged.outcome, judged.onset_step, judged.alarm_step) == ("nonfinite", 41, None)


def test_the_tail_shows_the_traceback_and_no_bars() -> None:
    """A 2 MB progress bar with carriage returns only must not hide the error (H58)."""
    bar = "".join(
        f"\r {n % 100}%|###       | {n}/99999 [00:01<00:09, 9.9it/s]" for n in range(40_000)
    )
    log = "start\n" + bar + "\r\n" + "x" * 5000 + "\n" + TRACEBACK + "KeyError: 'labels'\n"
    judged = verdict_of(CUT, log=log)
    assert judged is not None
    assert judged.tail[-1] == "KeyError: 'labels'"
    assert judged.tail[0] == "start"
    assert len(judged.tail) == 5
    assert all(len(line) <= logtail.LINE_LENGTH for line in judged.tail)
    assert judged.tail[1].endswith("… (cut)")


def test_the_tail_is_short() -> None:
    """Twenty lines, the last ones, without colours."""
    log = "".join(f"\x1b[33mline {n}\x1b[0m\n\n" for n in range(100))
    assert logtail.tail(log) == tuple(f"line {n}" for n in range(80, 100))


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (
            "ok\nValueError: first\nhandling\npkg.errors.ConfigError: second\nbye\n",
            "pkg.errors.ConfigError: second",
        ),
        (PACKING + LAUNCHER, PACKING.strip()),
        (LAUNCHER, LAUNCHER.strip()),
        ("KeyboardInterrupt\n", "KeyboardInterrupt"),
        (
            "ValidationError: 1 validation error for X\n  Value error, no\n    more\n",
            "ValidationError: 1 validation error for X Value error, no more",
        ),
        ("all Errors were fixed\nErrors: 0\n", None),
    ],
)
def test_the_error_line_is_the_cause(log: str, line: str | None) -> None:
    """The last exception named, with its details, but not the launcher's complaint about it."""
    assert logtail.error_line(log) == line


def test_the_last_word_tells_when_to_lose_patience() -> None:
    """Whoever follows may end a trainer that hangs after its end, alarm or error."""
    assert decided_at(TRAINED, attempt=1) is None
    assert decided_at([*TRAINED, end()], attempt=1) == 200.0
    assert decided_at([*TRAINED, end()], attempt=2) is None
