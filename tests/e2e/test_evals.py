"""log_eval and runner.callbacks inside real axolotl trainings of the tiny model."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pod import eval_rows, trainer, verdict
from pod.eval_rows import EvalRow
from pod.events import Event
from pod.rundir import RunDir, write_json
from runner.postmortem import post_mortem
from tests.e2e.training import LIMIT_S, Trained, TrainServer, make_run

pytestmark = pytest.mark.e2e

ALONE = ["tests.faults.each_alone.EachAlone"]
NOTES = "tests.faults.user_callbacks.Notes"
ROWS = 20  # of the evaluation set
PACKED = {"sample_packing": True, "eval_sample_packing": True, "sequence_len": 256}
LORA = {
    "adapter": "lora",
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_target_modules": ["q_proj", "v_proj"],
    "learning_rate": 0.01,
}
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "packed": {**PACKED, "micro_batch_size": 2},
    # A row for each bin, and several of them at once.
    "bins": {**PACKED, "micro_batch_size": 2, "multipack_real_batches": True},
    "only training is packed": {**PACKED, "micro_batch_size": 2, "eval_sample_packing": False},
    "lora, packed": {**PACKED, "micro_batch_size": 2, **LORA},
}
COMMON: dict[str, Any] = {
    "max_steps": 10,
    "eval_steps": 5,
    "save_steps": 10,
    "num_epochs": 3,
    "plugins": ALONE,
}


@pytest.fixture(scope="module")
def runs(
    train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Future[Trained]]:
    """Each way to lay out batches, and three of them without log_eval."""
    folder = tmp_path_factory.mktemp("evals")

    def train(name: str, way: str, log_eval: bool) -> Trained:
        run_dir = make_run(folder / name.replace(" ", "-"), **{**COMMON, **WAYS[way]})
        return train_server.train(run_dir, log_eval=log_eval).result()

    with ThreadPoolExecutor(max_workers=2) as pool:
        found = {way: pool.submit(train, way, way, True) for way in WAYS}
        for way in ("plain", "packed", "bins"):
            found[f"{way} without"] = pool.submit(train, f"{way} without", way, False)
    return found


def done(runs: dict[str, Future[Trained]], name: str) -> Trained:
    """The run, which must have gone well."""
    trained = runs[name].result()
    assert trained.code == 0, trained.log()[-3000:]
    return trained


def rows_at(trained: Trained, step: int, attempt: int = 1) -> list[EvalRow]:
    """What an evaluation left behind."""
    return eval_rows.read(trained.run_dir.evals / f"step-{step}.attempt-{attempt}.jsonl")


def alone(trained: Trained, step: int) -> list[float]:
    """The losses that the model gave for each row by itself."""
    lines = (trained.run_dir.path / "alone.jsonl").read_text().splitlines()
    (losses,) = [line["losses"] for line in map(json.loads, lines) if line["step"] == step]
    return list(losses)


@pytest.mark.parametrize("way", WAYS)
def test_each_row_of_an_evaluation_has_the_loss_of_the_row_alone(
    runs: dict[str, Future[Trained]], way: str
) -> None:
    """However rows are laid out in batches: which row it is, its loss, its label in words."""
    trained = done(runs, way)
    for step in (5, 10):
        rows, wanted = rows_at(trained, step), alone(trained, step)
        assert len(wanted) == ROWS
        assert len(rows) >= ROWS - 2, "packing may drop the last bin"
        assert [row.loss for row in rows] == sorted((row.loss for row in rows), reverse=True)
        indices = [row.index for row in rows if row.index is not None]
        assert len(set(indices)) == len(rows), "each row once, by its place in the data"
        for row in rows:
            assert row.index is not None
            assert row.loss == pytest.approx(wanted[row.index], rel=1e-4)
            assert row.peak >= row.loss
            assert "### Response:" in row.input
            assert row.label
            assert row.prediction
            assert (row.attempt, row.step, row.chosen) == (1, step, "worst")


@pytest.mark.parametrize("way", ["plain", "packed", "bins"])
def test_log_eval_changes_no_number_of_the_training(
    runs: dict[str, Future[Trained]], way: str
) -> None:
    """Losses and evaluations are the same to the last digit; without it nothing is written."""
    with_it, without = done(runs, way), done(runs, f"{way} without")
    assert with_it.losses() == without.losses()
    assert numbers(with_it.events("eval")) == numbers(without.events("eval")) != []
    assert list(with_it.run_dir.evals.iterdir())
    assert not without.run_dir.evals.exists()


def numbers(evaluations: list[Event]) -> list[dict[str, Any]]:
    """What does not depend on the clock."""
    return [
        {k: v for k, v in event.items() if k.startswith("eval_") and "per_second" not in k}
        | {"eval_runtime": None}
        for event in evaluations
    ]


def test_the_newest_evaluation_is_what_a_report_shows(runs: dict[str, Future[Trained]]) -> None:
    """Its worst rows."""
    trained = done(runs, "plain")
    assert eval_rows.newest_worst(trained.run_dir, 3) == rows_at(trained, 10)[:3]


@pytest.fixture(scope="module")
def ranks(
    train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[bool, Trained]:
    """Two ranks with a number of rows that they can't share evenly, with log_eval and without."""
    folder = tmp_path_factory.mktemp("ranks")

    def train(log_eval: bool) -> Future[Trained]:
        run_dir = RunDir(folder / str(log_eval))
        facts = {"attempt": 1, "log_eval": log_eval, "callbacks": [NOTES], "spike": {}}
        write_json(run_dir.attempt_file, facts)
        words = [str(run_dir.path), "no_fault", "--steps=20", "--evaluate=13"]
        return train_server.train_ranks(run_dir, 2, words)

    started = {log_eval: train(log_eval) for log_eval in (True, False)}
    return {log_eval: future.result() for log_eval, future in started.items()}


def test_the_rows_of_all_ranks_come_together(ranks: dict[bool, Trained]) -> None:
    """Each once, though rows are given twice so that the ranks have equally many."""
    trained = ranks[True]
    assert trained.code == 0, trained.log()[-3000:]
    for step in (10, 20):
        rows, wanted = rows_at(trained, step), alone(trained, step)
        assert sorted(row.index for row in rows if row.index is not None) == list(range(13))
        assert [row.loss for row in rows] == sorted((row.loss for row in rows), reverse=True)
        for row in rows:
            assert row.index is not None
            assert row.loss == pytest.approx(wanted[row.index], rel=1e-4)


def test_log_eval_changes_no_number_of_several_ranks(ranks: dict[bool, Trained]) -> None:
    """Losses and evaluations are the same to the last digit."""
    with_it, without = ranks[True], ranks[False]
    assert with_it.losses() == without.losses()
    assert numbers(with_it.events("eval")) == numbers(without.events("eval")) != []
    assert not without.run_dir.evals.exists()


def test_every_rank_has_the_callbacks(ranks: dict[bool, Trained]) -> None:
    """Told the same, each by its own trainer."""
    folder = ranks[True].run_dir.path
    told = [
        [(note["hook"], note["step"]) for note in map(json.loads, file.read_text().splitlines())]
        for file in sorted(folder.glob("notes-*.jsonl"))
    ]
    assert len(told) == 2
    assert told[0] == told[1]
    assert told[0][-1] == ("end", 20)


def test_whichever_rank_is_first_the_callback_is_named(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """The launcher ends the others at once, rank 0 too."""
    run_dir = RunDir(tmp_path)
    name = "tests.faults.user_callbacks.Gone"
    write_json(run_dir.attempt_file, {"attempt": 1, "callbacks": [name], "spike": {}})
    trained = train_server.train_ranks(run_dir, 2, [str(tmp_path), "no_fault"]).result()
    assert 1 <= len(trained.events("error")) <= 2
    assert judged(trained).outcome == "config_error"


# ------------------------------------------------------------------------------ callbacks


def judged(trained: Trained) -> verdict.Verdict:
    """The verdict on its only attempt."""
    found = verdict.judge(
        [event for kind in ("armed", "step", "error", "end") for event in trained.events(kind)],
        attempt=1,
        alive=False,
        exit_code=trained.code,
        log_tail=trained.log(),
        out=trained.run_dir.out,
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tests.faults.user_callbacks.Gone", "user_callbacks.py has no Gone"),
        ("tests.nowhere.Notes", "tests.nowhere can't be imported: ModuleNotFoundError: No module"),
        ("tests.faults.user_callbacks.Needy", "missing a required argument: 'path'"),
        ("pathlib.Path", "it is no class derived from transformers.TrainerCallback"),
    ],
)
def test_a_callback_that_cannot_be_used_ends_the_run_before_its_first_step(
    train_server: TrainServer, tmp_path: Path, name: str, reason: str
) -> None:
    """The reason is one line that names it; no other attempt would do better."""
    trained = train_server.train(make_run(tmp_path / "run"), callbacks=[NOTES, name]).result()
    found = judged(trained)
    assert found.outcome == "config_error"
    assert found.reason.startswith(f"runner.callbacks: {name}: ")
    assert reason in found.reason
    assert found.last_step is None
    assert trained.events("armed") == []


def test_a_callback_that_fails_is_named(train_server: TrainServer, tmp_path: Path) -> None:
    """With its method and its own error."""
    failing = "tests.faults.user_callbacks.Failing"
    trained = train_server.train(make_run(tmp_path / "run"), callbacks=[failing]).result()
    found = judged(trained)
    assert (found.outcome, found.last_step) == ("crash", 4), "step 5 was not logged yet"
    assert found.reason == (
        f"ValueError: runner.callbacks: {failing}.on_step_end: no sixth step (at step 4 of 40)"
    )


def test_a_callback_lives_through_a_spike_and_a_rewind(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """The same object, told of each pass; and evaluations go under the attempt that they are of."""
    run_dir = make_run(tmp_path / "run", task="spike.yml", eval_steps=5)
    facts = {"callbacks": [NOTES], "log_eval": True, "warm_seconds": 60}
    future = train_server.train(run_dir, **facts)
    rewind_after_alarm(run_dir, to=20, **facts)
    trained = future.result()
    assert trained.code == 0, trained.log()[-3000:]
    (alarm,) = trained.events("alarm", 1)
    assert trained.events("end", 2)
    lines = (run_dir.path / "notes-0.jsonl").read_text().splitlines()
    notes = [json.loads(line) for line in lines]
    assert len({note["object"] for note in notes}) == 1
    told = [(note["hook"], note["step"]) for note in notes]
    assert told == [
        ("init", 0),
        ("begin", 0),
        *(("log", step) for step in range(1, alarm["step"])),  # ours raises first
        ("begin", 20),
        *(("log", step) for step in range(21, 41)),
        ("end", 40),
    ]
    files = {path.name for path in run_dir.evals.iterdir()}
    assert {"step-20.attempt-1.jsonl", "step-25.attempt-1.jsonl"} < files
    assert {"step-25.attempt-2.jsonl", "step-40.attempt-2.jsonl"} < files
    worst = [rows_at(trained, 25, attempt)[0].loss for attempt in (1, 2)]
    assert worst[0] > worst[1] + 1, "the ruined weights show in the rows of attempt 1"
    assert eval_rows.newest_worst(run_dir, 1) == rows_at(trained, 40, 2)[:1]
    assert post_mortem(trained.events("postmortem", 2)) is not None


def rewind_after_alarm(run_dir: RunDir, *, to: int, **facts: Any) -> None:
    """What the flow of the second attempt does."""
    deadline = time.monotonic() + LIMIT_S
    while not Trained(run_dir).events("alarm", 1):
        assert time.monotonic() < deadline, run_dir.trainer_log.read_text()[-3000:]
        time.sleep(0.05)
    write_json(
        run_dir.attempt_file,
        {"attempt": 2, "from_checkpoint": to, "rung": {"kind": "replay"}, "spike": {}, **facts},
    )
    checkpoint = (run_dir.out / f"checkpoint-{to}").resolve()
    trainer.request(run_dir, "rewind", attempt=2, checkpoint=str(checkpoint))
