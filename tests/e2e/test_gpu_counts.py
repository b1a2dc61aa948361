"""A run goes on with another number of processes: same rows, same losses, same plan (H39)."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from pod import ledger
from pod.rundir import RunDir, write_json
from runner.sharing import Shares, recorded, share_out
from tests.e2e.training import Trained, TrainServer

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

STEPS, BEGIN = 60, 35  # an epoch has 50 steps of 8 rows
ROWS = 8
# processes before and after
MOVES = [(2, 1), (1, 2), (4, 2), (1, 4)]
TASK = {"micro_batch_size": 4, "gradient_accumulation_steps": 2}


def shares_of(processes: int, run_dir: RunDir | None = None) -> Shares:
    """What the runner makes of the pod's GPUs: with a checkpoint from what that was written by."""
    before = None
    if run_dir is not None:
        (newest,) = [each for each in ledger.checkpoints(run_dir) if each.step == BEGIN]
        before = recorded(newest.batch)
        assert before is not None
    return share_out(TASK, gpus=processes, asked=[1], overrides={}, before=before)


def train(
    server: TrainServer, run_dir: RunDir, processes: int, steps: int, attempt: int = 1
) -> Trained:
    """One attempt."""
    begin = BEGIN if attempt > 1 else None
    facts = {"attempt": attempt, "from_checkpoint": begin, "spike": {}}
    run_dir.path.mkdir(parents=True, exist_ok=True)
    write_json(run_dir.attempt_file, facts)
    shares = shares_of(processes, run_dir if begin else None)
    assert shares.rows == ROWS
    words = [
        *(str(run_dir.path), "no_fault", "--record", f"--steps={steps}"),
        f"--micro={shares.batch.micro}",
        f"--accumulation={shares.batch.accumulation}",
        *(["--resume", str(run_dir.out / f"checkpoint-{begin}")] if begin else []),
    ]
    trained = server.train_ranks(run_dir, processes, words).result()
    assert trained.code == 0, trained.log()[-3000:]
    return trained


def rows(trained: Trained, attempt: int) -> dict[int, list[int]]:
    """The rows of each step, of all ranks together."""
    found: dict[int, list[int]] = {}
    for file in sorted(trained.run_dir.path.glob("rows-*.jsonl")):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["attempt"] == attempt:
                found.setdefault(line["step"], []).extend(line["rows"])
    return {step: sorted(seen) for step, seen in found.items()}


@pytest.fixture(scope="module")
def trained(
    train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[object, Future[Trained]]:
    """An uninterrupted run, and each move at step BEGIN."""
    folder = tmp_path_factory.mktemp("counts")

    def moved(before: int, after: int) -> Trained:
        run_dir = RunDir(folder / f"{before}-{after}")
        train(train_server, run_dir, before, STEPS)
        return train(train_server, run_dir, after, STEPS, attempt=2)

    with ThreadPoolExecutor(max_workers=2) as pool:
        whole = pool.submit(train, train_server, RunDir(folder / "whole"), 1, STEPS)
        return {None: whole, **{move: pool.submit(moved, *move) for move in MOVES}}


@pytest.mark.parametrize("move", MOVES, ids=lambda move: f"{move[0]} to {move[1]}")
def test_a_run_goes_on_with_another_number_of_processes(
    trained: dict[object, Future[Trained]], move: tuple[int, int]
) -> None:
    """Each step has the rows and, but for rounding, the loss and the rate of a run without a move,
    to the same planned end, across the end of an epoch.
    """
    whole, here = trained[None].result(), trained[move].result()
    expected = {step: seen for step, seen in rows(whole, 1).items() if step > BEGIN}
    assert rows(here, 2) == expected
    assert sorted(here.losses(2)) == list(range(BEGIN + 1, STEPS + 1))
    losses, rates = whole.losses(), {e["step"]: e["lr"] for e in whole.events("step")}
    for event in here.events("step", 2):
        assert event["loss"] == pytest.approx(losses[event["step"]], rel=1e-5)
        assert event["lr"] == rates[event["step"]]
    (armed,) = here.events("armed", 2)
    assert armed["planned_steps"] == STEPS


def test_the_comparison_can_fail(trained: dict[object, Future[Trained]]) -> None:
    """Steps differ in their rows and losses by far more than the rounding."""
    whole = trained[None].result()
    seen, losses = rows(whole, 1), whole.losses()
    assert all(len(each) == ROWS for each in seen.values())
    assert seen[BEGIN + 1] != seen[BEGIN + 2]
    assert max(losses.values()) > 1.1 * min(losses.values())
    assert recorded(ledger.checkpoints(whole.run_dir)[0].batch) == shares_of(1)
