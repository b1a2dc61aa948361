"""Several ranks stop together, or the whole job ends: it never hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from pod import ledger, trainer
from pod.rundir import RunDir, write_json
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import needs_axolotl
from tests.e2e.training import LIMIT_S, Trained, TrainServer

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

FAULT_STEP = 15
# fault, kind of alarm, latest step of it
SPIKES = [
    ("ruin_all", "jump", FAULT_STEP + 5),
    ("ruin_last", "jump", FAULT_STEP + 5),
    ("nan_weights_last", "nonfinite", FAULT_STEP + 2),
    ("nan_gradients_last", "nonfinite", FAULT_STEP),
]
ERRORS = ["error_first", "error_last", "out_of_memory_last", "killed_last"]
WORKER = Path(__file__).with_name("ranks_worker.py")


def prepare(folder: Path, *, attempt: int = 1) -> tuple[RunDir, list[str]]:
    """What the train flow does before a start; gives the worker's words for the checkpoint."""
    run_dir = RunDir(folder)
    picked = ledger.pick(run_dir) if attempt > 1 else None
    facts = {"attempt": attempt, "from_checkpoint": picked.step if picked else None, "spike": {}}
    write_json(run_dir.attempt_file, facts)
    run_dir.control.unlink(missing_ok=True)
    for old in folder.glob("rank-*.json"):
        old.unlink()
    return run_dir, ["--resume", str(picked.path)] if picked else []


def ranks_of(run_dir: RunDir) -> list[dict[str, object]]:
    """How each rank left."""
    return [json.loads(file.read_text()) for file in sorted(run_dir.path.glob("rank-*.json"))]


@pytest.fixture(scope="module")
def jobs(
    request: pytest.FixtureRequest,
    train_server: TrainServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, int], Future[Trained]]:
    """Each fault with 2 and, for some, with 4 ranks; two jobs at once."""
    folder = tmp_path_factory.mktemp("ranks")
    wanted = [(fault, 2) for fault, *_ in SPIKES] + [("odd_norm_last", 2), ("ruin_last", 4)]
    if request.config.getoption("--long"):
        wanted += [(fault, 4) for fault, *_ in SPIKES if fault != "ruin_last"]

    def train(fault: str, ranks: int) -> Trained:
        run_dir, _ = prepare(folder / f"{fault}-{ranks}")
        words = [str(run_dir.path), fault]
        return train_server.train_ranks(run_dir, ranks, words).result()

    with ThreadPoolExecutor(max_workers=2) as pool:
        return {job: pool.submit(train, *job) for job in wanted}


@pytest.mark.parametrize(
    ("fault", "kind", "latest", "ranks"),
    [
        pytest.param(*spike, ranks, marks=pytest.mark.chaos if ranks == 4 and number != 1 else [])
        for number, spike in enumerate(SPIKES)
        for ranks in (2, 4)
    ],
)
def test_all_ranks_leave_at_the_same_step(
    jobs: dict[tuple[str, int], Future[Trained]], fault: str, kind: str, latest: int, ranks: int
) -> None:
    """Whoever sees it: all raise LossSpike after the same step, one alarm, no final model."""
    left = jobs[fault, ranks].result()
    assert left.code == 1, left.log()[-3000:]
    (alarm,) = left.events("alarm")
    assert ranks_of(left.run_dir) == [{"step": alarm["step"], "error": "LossSpike"}] * ranks
    assert alarm["alarm"] == kind
    assert FAULT_STEP <= alarm["onset_step"] <= FAULT_STEP + 1
    assert alarm["step"] <= latest
    assert left.events("end") == left.events("error") == []
    assert not (left.run_dir.out / "model.safetensors").exists()


def test_an_odd_gradient_norm_on_one_rank_is_no_alarm(
    jobs: dict[tuple[str, int], Future[Trained]],
) -> None:
    """Its weights are well, so the training goes on, on all ranks."""
    left = jobs["odd_norm_last", 2].result()
    assert left.code == 0, left.log()[-3000:]
    assert ranks_of(left.run_dir) == [{"step": 40, "error": None}] * 2
    assert left.events("alarm") == []


@contextmanager
def torchrun(folder: Path, fault: str, *, ranks: int) -> Iterator[Trained]:
    """The ranks under the real launcher, as axolotl starts it."""
    needs_axolotl()
    run_dir, _ = prepare(folder)
    env = axolotl_environment()
    base = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    with run_dir.trainer_log.open("ab") as log:
        process = subprocess.Popen(
            [
                *(env / "bin" / "torchrun", "--standalone", f"--nproc-per-node={ranks}"),
                *(WORKER, folder, fault),
            ],
            cwd=REPOSITORY,
            env=trainer.trainer_environment(base, axolotl_env=env, run_dir=run_dir, gpu=False),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield Trained(run_dir, process.wait(timeout=2 * LIMIT_S))
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("fault", "ranks"),
    [
        ("error_last", 2),
        *(
            pytest.param(fault, ranks, marks=pytest.mark.chaos)
            for fault in ERRORS
            for ranks in (2, 4)
            if (fault, ranks) != ("error_last", 2)
        ),
    ],
)
def test_an_error_on_one_rank_ends_the_whole_job(tmp_path: Path, ranks: int, fault: str) -> None:
    """The others wait for it inside a collective; the launcher ends them. Nothing is saved."""
    with torchrun(tmp_path / "run", fault, ranks=ranks) as left:
        assert left.code != 0
        assert left.events("alarm") == left.events("end") == []
        assert [event["step"] for event in left.events("step")][-1] <= FAULT_STEP
        picked = ledger.pick(left.run_dir)
        assert picked is not None
        assert picked.step in (FAULT_STEP - 5, FAULT_STEP)


def test_a_stop_is_obeyed_by_all_ranks_and_resumed_from(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """Rank 0 alone reads the command; all save the same step; the rest is trained later on."""
    run_dir, _ = prepare(tmp_path)
    stopped = train_server.train_ranks(run_dir, 2, [str(tmp_path), "no_fault", "--steps=500"])
    deadline = time.monotonic() + LIMIT_S
    while max(Trained(run_dir).losses(), default=0) < 8:
        assert time.monotonic() < deadline
        assert not stopped.done()
        time.sleep(0.05)
    trainer.request(run_dir, "stop")
    left = stopped.result()
    assert left.code == 0, left.log()[-3000:]
    (answer,) = [event for event in left.events("decision") if event["cmd"] == "stop"]
    last = answer["step"]
    assert ranks_of(run_dir) == [{"step": last, "error": None}] * 2
    assert last < 500
    run_dir, resume = prepare(tmp_path, attempt=2)
    words = [str(tmp_path), "no_fault", f"--steps={last + 5}", *resume]
    again = train_server.train_ranks(run_dir, 2, words).result()
    assert again.code == 0, again.log()[-3000:]
    assert sorted(again.losses(2)) == list(range(last + 1, last + 6))
