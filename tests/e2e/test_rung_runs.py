"""Rewinds and rungs inside real axolotl trainings: what is trained after an alarm, row by row.

The fault is garbage in the data, so it comes back each time its steps are story. One process
goes through five attempts, told what to do as the flows would; new processes do the same from
copies of its checkpoints, and must come to the same losses.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pod import events, ledger, trainer, verdict
from pod.events import Event
from pod.rundir import RunDir, read_json, write_json
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.training import LIMIT_S, Trained, TrainServer, make_run

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

GARBAGE = ["tests.faults.garbage_rows.GarbageRows", "tests.faults.witness.Witness"]
NAN = ["tests.faults.nan_once.NanOnce", "tests.faults.witness.Witness"]
FAULT = 24
REPLAY = {"kind": "replay"}
SCALE = {"kind": "scale", "learning_rate": 0.5, "weight_decay": 2.0, "moments": "reset"}
SKIP = {"kind": "skip", "first": 24, "last": 27}
SKIPPED = range(24, 28)
HALF = {"learning_rate": 0.5, "weight_decay": 2.0}
AS_IT_IS = {"learning_rate": 1.0, "weight_decay": 1.0}
COMMON = {"weight_decay": 0.1, "save_total_limit": 20, "fault_step": FAULT}


@dataclass
class Run:
    """A run directory, and how long attempts took to their first step."""

    run_dir: RunDir
    seconds: dict[int, float] = field(default_factory=dict)

    def start(self, attempt: int, checkpoint: Path | None = None, **facts: Any) -> None:
        """A new process, as a pod starts it."""
        self._note(attempt, checkpoint, **facts)
        began = time.monotonic()
        trainer.start(
            self.run_dir,
            trainer.command(
                axolotl_environment() / "bin" / "axolotl", self.run_dir, resume_from=checkpoint
            ),
            trainer.trainer_environment(
                # Losses are equal to the last digit only with the same number of threads.
                {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
                axolotl_env=axolotl_environment(),
                run_dir=self.run_dir,
                gpu=False,
            ),
            attempt=attempt,
            cwd=REPOSITORY,
        )
        self._wait_until(lambda: self.steps(attempt))
        self.seconds[attempt] = time.monotonic() - began

    def rewind(self, attempt: int, step: int, **facts: Any) -> None:
        """The same process, as the flow of the coming attempt does it."""
        self.wait_for_alarm(attempt - 1)
        checkpoint = self.run_dir.out / f"checkpoint-{step}"
        self._note(attempt, checkpoint, warm_seconds=60, **facts)
        began = time.monotonic()
        seq = trainer.request(
            self.run_dir, "rewind", attempt=attempt, checkpoint=str(checkpoint.resolve())
        )
        self._wait_until(lambda: self.steps(attempt))
        self.seconds[attempt] = time.monotonic() - began
        (answer,) = self.events("rewound", attempt)
        assert (answer["seq"], answer["from_checkpoint"]) == (seq, step)

    def wait_for_alarm(self, attempt: int) -> None:
        self._wait_until(lambda: self.events("alarm", attempt))

    def finish(self) -> None:
        self._wait_until(lambda: trainer.find(self.run_dir) is None)

    def judge(self, attempt: int, *, alive: bool = False) -> verdict.Verdict:
        judged = verdict.judge(
            self.events(),
            attempt=attempt,
            alive=alive,
            exit_code=None,
            log_tail=self.run_dir.trainer_log.read_text(errors="replace"),
            out=self.run_dir.out,
        )
        assert judged is not None
        return judged

    def events(self, kind: str | None = None, attempt: int | None = None) -> list[Event]:
        return [
            event
            for event in events.read(self.run_dir.events)[0]
            if kind in (None, event["kind"]) and attempt in (None, event["attempt"])
        ]

    def steps(self, attempt: int) -> list[int]:
        return [event["step"] for event in self.events("step", attempt)]

    def losses(self, attempt: int) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in self.events("step", attempt)}

    def rung(self, attempt: int) -> Event:
        (event,) = (e for e in self.events("decision", attempt) if "seq" not in e)
        return event

    def worst(self, attempt: int) -> list[dict[str, Any]]:
        (event,) = self.events("postmortem", attempt)
        rows: list[dict[str, Any]] = event["rows"]
        return rows

    def witness(self, *passes: int) -> dict[int, dict[str, Any]]:
        """What was trained in these entries into trainer.train, by step; of all without any."""
        lines = (self.run_dir.path / "witness.jsonl").read_text().splitlines()
        notes = [json.loads(line) for line in lines]
        return {note["step"]: note for note in notes if not passes or note["pass"] in passes}

    def _note(self, attempt: int, checkpoint: Path | None, **facts: Any) -> None:
        step = int(checkpoint.name.rpartition("-")[2]) if checkpoint else None
        given = {"attempt": attempt, "from_checkpoint": step, "rung": None, "spike": {}}
        write_json(self.run_dir.attempt_file, {**given, "factors": AS_IT_IS, **facts})

    def _wait_until(self, true: Callable[[], object]) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < deadline, self.run_dir.trainer_log.read_text()[-3000:]
            time.sleep(0.02)


def copied(run: Run, step: int, folder: Path) -> Path:
    """A copy of a checkpoint, in the output folder of another run."""
    target = folder / "out" / f"checkpoint-{step}"
    shutil.copytree(run.run_dir.out / target.name, target)
    return target


@dataclass(frozen=True)
class Story:
    """One process with five attempts, and four processes from copies of its checkpoints."""

    warm: Run
    judged_alive: verdict.Verdict
    replaced: dict[str, Run]


@pytest.fixture(scope="module")
def story(train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Two trainers as a pod starts them, to be timed; the others by the server."""
    folder = tmp_path_factory.mktemp("rungs")
    warm = Run(make_run(folder / "warm", plugins=GARBAGE, **COMMON))
    replaced: dict[str, Run] = {}
    served: list[Future[Trained]] = []

    def replace(name: str, step: int) -> Path:
        replaced[name] = Run(make_run(folder / name, plugins=GARBAGE, **COMMON))
        return copied(warm, step, folder / name)

    def serve(name: str, step: int, **facts: Any) -> None:
        replace(name, step)
        run_dir = replaced[name].run_dir
        served.append(train_server.train(run_dir, attempt=2, resume_from=step, **facts))

    warm.start(1, warm_seconds=60)
    warm.wait_for_alarm(1)
    judged = warm.judge(1, alive=True)
    serve("skip", 15, rung=SKIP)
    warm.rewind(2, 15, rung=REPLAY)
    warm.rewind(3, 15, rung=SCALE, factors=HALF)
    warm.wait_for_alarm(3)
    serve("again", 20, rung=REPLAY, factors=HALF)
    warm.rewind(4, 20, rung=REPLAY, factors=HALF)
    warm.rewind(5, 15, rung=SKIP)
    warm.finish()
    serve("scale", 15, rung=SCALE, factors=HALF)
    checkpoint = replace("replay", 15)
    replaced["replay"].start(2, checkpoint, rung=REPLAY)
    replaced["replay"].finish()
    for each in served:
        each.result()
    return Story(warm, judged, replaced)


def test_an_alarm_is_a_verdict_while_the_trainer_waits(story: Story) -> None:
    """The attempt is over; its process is not."""
    assert story.judged_alive.outcome == "loss_spike"
    assert story.judged_alive.alarm_step is not None
    assert FAULT < story.judged_alive.alarm_step <= FAULT + 6


def test_a_replay_trains_the_same_rows_to_the_same_losses(story: Story) -> None:
    """To the last digit, in the same process and in a new one, up to the same alarm."""
    warm, new = story.warm, story.replaced["replay"]
    first = {step: loss for step, loss in warm.losses(1).items() if step > 15}
    assert warm.losses(2) == first
    assert new.losses(2) == first
    before, again = warm.witness(1), warm.witness(2)
    assert min(again) == 16
    assert all(again[step] == {**before[step], "pass": 2} for step in again)
    assert all(new.witness()[step]["rows"] == before[step]["rows"] for step in again)


def test_a_rewind_takes_a_fraction_of_a_new_process(
    story: Story, record_property: Callable[[str, object], None]
) -> None:
    """Seconds from the decision to the first step."""
    warm, new = story.warm.seconds[2], story.replaced["replay"].seconds[2]
    print(f"to the first step: {warm:.2f} s rewound, {new:.2f} s replaced")
    record_property("seconds", (warm, new))
    assert warm < new / 2


def test_skipped_rows_are_never_trained(story: Story) -> None:
    """The rest has the rows and the learning rate that it would have had."""
    warm, new = story.warm, story.replaced["skip"]
    before = warm.witness(1)
    left_out = {row for step in SKIPPED for row in before[step]["rows"]}
    for each, attempt, passes in ((warm, 5, (5, 6)), (new, 2, ())):
        assert each.steps(attempt) == [*range(16, 24), *range(28, 41)]
        seen = each.witness(*passes)
        assert not left_out & {row for note in seen.values() for row in note["rows"]}
        shared = [step for step in seen if step in before]
        assert shared
        assert all(seen[step]["rows"] == before[step]["rows"] for step in shared)
        assert all(seen[step]["lr"] == pytest.approx(before[step]["lr"]) for step in shared)
        judged = each.judge(attempt)
        assert (judged.outcome, judged.last_step) == ("completed", 40)
        told = each.rung(attempt)
        assert (told["cmd"], told["first"], told["last"]) == ("skip", 24, 27)
        assert not (each.run_dir.path / "doctored").exists()
    assert warm.losses(5) == new.losses(2)


def test_rate_decay_and_moments_change_and_not_twice(story: Story) -> None:
    """Half the rate, twice the decay, moments anew; a second resume leaves it at that."""
    warm = story.warm
    before = warm.witness(1)
    cases = [
        (warm.witness(3), warm.rung(3), 16, 0),
        (story.replaced["scale"].witness(), story.replaced["scale"].rung(2), 16, 0),
        (warm.witness(4), warm.rung(4), 21, 5),
        (story.replaced["again"].witness(), story.replaced["again"].rung(2), 21, 5),
    ]
    for seen, told, first, moments in cases:
        assert (min(seen), seen[first]["moments"]) == (first, moments)
        for step in range(first, FAULT):
            assert seen[step]["lr"] == pytest.approx(0.5 * before[step]["lr"])
            assert seen[step]["weight_decay"] == pytest.approx(0.2)
        assert told["learning_rate"][0] == pytest.approx(seen[first]["lr"])
        assert told["weight_decay"][0] == pytest.approx(0.2)
        assert told["factors"] == HALF
    assert warm.losses(3) == story.replaced["scale"].losses(2)
    again = story.replaced["again"].losses(2)  # trains on: it knows no curve before step 21
    assert warm.losses(4) == {step: again[step] for step in warm.steps(4)}
    logged = warm.events("step", 4)[0]
    assert logged["lr"] == pytest.approx(0.5 * before[21]["lr"])


def test_the_ledger_knows_the_factors(story: Story) -> None:
    """Of a checkpoint saved under the rung; attempt 5 had the task file's own values again."""
    again = story.replaced["again"].run_dir
    assert {c.step: c.factors for c in ledger.checkpoints(again)}[20] == HALF
    saved = {c.step: c for c in ledger.checkpoints(story.warm.run_dir)}
    assert (saved[40].factors, saved[40].rung) == (AS_IT_IS, SKIP)


def test_the_post_mortem_names_the_planted_rows(story: Story) -> None:
    """They come first, with a loss far above the others'; whichever attempt looks."""
    planted = read_json(story.warm.run_dir.path / "planted.json")
    assert planted is not None
    for run, attempt in ((story.warm, 2), (story.warm, 5)):
        worst = run.worst(attempt)
        garbage = [row for row in worst if row["index"] in planted["rows"]]
        assert worst[: len(garbage)] == garbage
        assert len(garbage) >= 5
        assert all(row["step"] in planted["steps"] for row in garbage)
        others = [row["loss"] for row in worst[len(garbage) :]]
        assert garbage[-1]["loss"] > 1.5 * max(others)
        assert garbage[0]["text"]
        assert garbage[0]["tokens"] > 0


def test_without_a_next_attempt_the_rows_are_named_at_the_alarm(story: Story) -> None:
    """A process that does not wait says what it can before it ends."""
    new = story.replaced["replay"]
    (alarm,) = new.events("alarm", 2)
    assert alarm["waiting"] is False
    rows = new.worst(2)
    first = story.warm.witness(1)
    assert {row["step"] for row in rows} <= set(first)
    assert rows


def test_an_adapter_with_packed_rows_is_rewound_too(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """All weights are NaN at the alarm; afterwards rows and losses are those of before."""
    changes = {
        "sample_packing": True,
        "micro_batch_size": 1,
        "num_epochs": 4,
        "eval_steps": 100,
        "adapter": "lora",
        "lora_r": 4,
        "lora_alpha": 8,
        "lora_dropout": 0.1,  # so that the random numbers must go on where they were, too
        "lora_target_modules": ["q_proj", "v_proj"],
    }
    run = Run(make_run(tmp_path / "run", plugins=NAN, **COMMON, **changes))
    ended = train_server.train(run.run_dir, warm_seconds=60)
    run.rewind(2, 20, rung=REPLAY)
    assert ended.result().code == 0
    before = {step: loss for step, loss in run.losses(1).items() if 20 < step <= FAULT}
    after = run.losses(2)
    assert {step: after[step] for step in before} == before
    assert max(after) == 40
    assert all(run.witness(2)[step]["rows"] == run.witness(1)[step]["rows"] for step in before)
    rows = run.worst(2)
    assert {row["step"] for row in rows} == {FAULT, FAULT + 1}
    assert all(row["loss"] > 0 for row in rows)


def test_two_ranks_go_back_and_skip_together(train_server: TrainServer, tmp_path: Path) -> None:
    """Rank 0 reads the command; both replay to the same alarm, then both pass the window over."""
    run = Run(RunDir(tmp_path / "run"))
    run._note(1, None, warm_seconds=60)
    ended = train_server.train_ranks(run.run_dir, 2, [str(run.run_dir.path), "ruin_all"])
    run.rewind(2, 10, rung=REPLAY)
    run.rewind(3, 10, rung={"kind": "skip", "first": 14, "last": 17})
    assert ended.result().code == 0
    first = run.losses(1)
    assert run.losses(2) == {step: loss for step, loss in first.items() if step > 10}
    assert run.steps(3) == [*range(11, 14), *range(18, 41)]
    assert [run.losses(3)[step] for step in (11, 12, 13)] == [first[step] for step in (11, 12, 13)]
    (event,) = run.events("postmortem", 2)
    steps = [row["step"] for row in event["rows"]]
    assert len({row["index"] for row in event["rows"]}) == len(steps) == 32, "both ranks' rows"
    assert all(row["loss"] > 0 for row in event["rows"])


def test_preference_rows_are_named_without_a_loss(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """The loss of DPO belongs to pairs and needs a second model; going back works like anywhere."""
    data = tmp_path / "preferences.jsonl"
    words = {"chosen": "The cat mews.", "rejected": "The dog barks."}
    rows = [{"prompt": f"Ada counts to {n} and says: ", **words} for n in range(200)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    fields = {f"field_{name}": name for name in rows[0]}
    formats = {f"{name}_format": f"{{{name}}}" for name in rows[0]}
    source = {"path": str(data), "ds_type": "json", "split": "train", "type": fields | formats}
    task = {"rl": "dpo", "datasets": [source], "val_set_size": 0, "eval_steps": None}
    small = {"micro_batch_size": 4, "learning_rate": 0.001, "sequence_len": 64}
    run = Run(make_run(tmp_path / "run", plugins=NAN, **COMMON, **task, **small))
    ended = train_server.train(run.run_dir, warm_seconds=60)
    run.rewind(2, 20, rung=REPLAY)
    assert ended.result().code == 0, run.run_dir.trainer_log.read_text()[-3000:]
    assert max(run.steps(2)) == 40
    named = run.worst(2)
    assert {row["step"] for row in named} == {FAULT, FAULT + 1}
    assert all(row["loss"] is None and "cat mews" in row["text"] for row in named)
