"""The event file: written by one process, read by others while it grows."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path

import pytest

from pod.events import Event, Follower, append, kept_steps, read


def test_an_event_has_kind_time_attempt_and_step(tmp_path: Path) -> None:
    """Those four are always there, the rest is the writer's."""
    path = tmp_path / "events.jsonl"
    append(path, "save", 2, 15, t=1000.5, checkpoint="checkpoint-15")
    (event,), _ = read(path)
    assert event == {
        "kind": "save",
        "t": 1000.5,
        "attempt": 2,
        "step": 15,
        "checkpoint": "checkpoint-15",
    }


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_non_finite_numbers_travel_as_text(tmp_path: Path, value: float, text: str) -> None:
    """Every JSON parser can read the line, and `read` gives the number back (H29)."""
    path = tmp_path / "events.jsonl"
    append(path, "step", 1, 3, loss=value, nested={"deep": value})
    line = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert line["loss"] == text
    (event,), _ = read(path)
    assert event["loss"] == value or math.isnan(event["loss"])
    assert isinstance(event["nested"]["deep"], float)


def test_a_line_still_being_written_is_left_for_the_next_read(tmp_path: Path) -> None:
    """The offset stays before it, and it is read once its end has come."""
    path = tmp_path / "events.jsonl"
    append(path, "step", 1, 1)
    with path.open("a") as file:
        file.write('{"kind": "step", "t": 0, "atte')
    events, offset = read(path)
    assert [event["step"] for event in events] == [1]
    with path.open("a") as file:
        file.write('mpt": 1, "step": 2}\n')
    events, offset = read(path, offset)
    assert [event["step"] for event in events] == [2]
    assert offset == path.stat().st_size


def test_a_writer_that_died_in_a_line_does_not_spoil_the_next_event(tmp_path: Path) -> None:
    """The next writer closes the torn line first, and readers pass it over."""
    path = tmp_path / "events.jsonl"
    append(path, "step", 1, 1)
    with path.open("a") as file:
        file.write('{"kind": "step", "t"')
    append(path, "armed", 2, 0)
    assert [event["kind"] for event in read(path)[0]] == ["step", "armed"]


def test_a_missing_file_has_no_events(tmp_path: Path) -> None:
    """A follower may start before the trainer."""
    assert read(tmp_path / "events.jsonl", 0) == ([], 0)


def test_a_follower_gives_each_event_once(tmp_path: Path) -> None:
    """`poll` returns what is new; `seen` holds all."""
    follower = Follower(tmp_path / "events.jsonl")
    assert follower.poll() == []
    append(follower.path, "step", 1, 1)
    assert [event["step"] for event in follower.poll()] == [1]
    append(follower.path, "step", 1, 2)
    append(follower.path, "step", 1, 3)
    assert [event["step"] for event in follower.poll()] == [2, 3]
    assert [event["step"] for event in follower.seen] == [1, 2, 3]


def _write_many(path: Path, attempt: int) -> None:
    for step in range(200):
        append(path, "step", attempt, step, filler="x" * 200)


def test_two_writers_do_not_mix_their_lines(tmp_path: Path) -> None:
    """Each event is one write to the end of the file, so no line is lost or torn."""
    path = tmp_path / "events.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_many, args=(path, n)) for n in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    events, _ = read(path)
    assert [event["step"] for event in events if event["attempt"] == 1] == list(range(200))
    assert len(events) == 400


def _steps(attempt: int, first: int, last: int) -> list[Event]:
    return [
        {"kind": "step", "t": 0.0, "attempt": attempt, "step": step, "loss": float(attempt)}
        for step in range(first, last + 1)
    ]


def test_the_kept_branch_leaves_out_what_was_trained_again() -> None:
    """Attempt 2 went back to step 10, attempt 3 to 5: of attempt 1 only 1-5 count then (H42)."""
    past = [*_steps(1, 1, 14), *_steps(2, 11, 17), *_steps(3, 6, 8)]

    def branch(attempt: int, up_to: int) -> list[tuple[int, float]]:
        kept = kept_steps(past, before_attempt=attempt, up_to=up_to)
        return [(event["step"], event["loss"]) for event in kept]

    assert branch(2, 10) == [(step, 1.0) for step in range(1, 11)]
    assert branch(3, 12) == [(step, 1.0) for step in range(1, 11)] + [(11, 2.0), (12, 2.0)]
    assert branch(4, 7) == [(step, 1.0) for step in range(1, 6)] + [(6, 3.0), (7, 3.0)]
    assert branch(1, 0) == []


@pytest.mark.parametrize(("done", "losses"), [(True, [1.0, 1.0, 2.0]), (False, [1.0] * 4 + [2.0])])
def test_skipped_steps_are_no_part_of_the_kept_branch(done: bool, losses: list[float]) -> None:
    """Attempt 1 spiked in steps 3-4; attempt 2 passed them over, its detector must not see them."""
    skip = {"kind": "decision", "t": 0.0, "attempt": 2, "step": 4, "cmd": "skip", "done": done}
    past = [*_steps(1, 1, 6), {**skip, "first": 3, "last": 4}, *_steps(2, 5, 8)]
    kept = kept_steps(past, before_attempt=3, up_to=5)
    assert [event["loss"] for event in kept] == losses
