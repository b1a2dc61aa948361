"""The guard counts log entries, however many steps and evaluations lie between them (H28, H42)."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.training import Trained, TrainServer, make_run

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

# By logging_steps: ten entries or more to learn from, and never the end of an entry of several.
FAULT_STEP = {1: 22, 5: 52, 10: 92}
FAULTS = ["spike", "blip"]
WAYS = [(1, 1), (5, 4), (10, 1)]  # logging_steps, gradient_accumulation_steps
MORE_WAYS = [(1, 4), (5, 1), (10, 4)]


def last_step(entry: int) -> int:
    """Six entries after the fault."""
    return FAULT_STEP[entry] // entry * entry + 7 * entry


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
    train_server: TrainServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[int, int, str], Future[Trained]]:
    """Each way with ruined weights, and with a single high loss; evaluated after every step."""
    folder = tmp_path_factory.mktemp("logging")

    def train(entry: int, accumulation: int, fault: str) -> Trained:
        at = FAULT_STEP[entry]
        faults: dict[str, dict[str, Any]] = {
            # So much that it can't be learned again before the alarm, 40 steps later.
            "spike": {
                "plugins": ["tests.faults.weights_once.WeightsOnce"],
                "fault_step": at,
                "fault_noise": 40.0,
            },
            "blip": {"plugins": ["tests.faults.loss_blip.LossBlip"], "blip_step": at},
        }
        run_dir = make_run(
            folder / f"{entry}-{accumulation}-{fault}",
            logging_steps=entry,
            gradient_accumulation_steps=accumulation,
            micro_batch_size=2,
            val_set_size=0.005,  # two rows
            eval_steps=1,
            learning_rate=0.0005,
            max_steps=last_step(entry),
            num_epochs=10,
            save_steps=10,
            **faults[fault],
        )
        return train_server.train(run_dir).result()

    ways = WAYS + MORE_WAYS if request.config.getoption("--long") else WAYS
    with ThreadPoolExecutor(max_workers=2) as pool:
        return {(*way, fault): pool.submit(train, *way, fault) for fault in FAULTS for way in ways}


ALL = [*WAYS, *(pytest.param(*way, marks=pytest.mark.chaos) for way in MORE_WAYS)]


@pytest.mark.parametrize(("entry", "accumulation"), ALL)
def test_an_alarm_comes_after_a_few_entries_and_knows_its_first_step(
    runs: dict[tuple[int, int, str], Future[Trained]], entry: int, accumulation: int
) -> None:
    """The onset is the first step of the first bad entry: checkpoints inside it are not trusted."""
    trained = runs[entry, accumulation, "spike"].result()
    assert trained.code != 0
    (alarm,) = trained.events("alarm")
    first_bad = FAULT_STEP[entry] + 1
    assert first_bad - entry < alarm["onset_step"] <= first_bad
    assert (alarm["onset_step"] - 1) % entry == 0
    assert alarm["step"] - first_bad < 5 * entry
    assert trained.events("end") == []


@pytest.mark.parametrize(("entry", "accumulation"), ALL)
def test_one_high_entry_is_no_alarm_however_often_one_evaluates(
    runs: dict[tuple[int, int, str], Future[Trained]], entry: int, accumulation: int
) -> None:
    """Between two entries lie ten steps and ten evaluations: the entry still counts once."""
    trained = runs[entry, accumulation, "blip"].result()
    assert trained.code == 0, trained.log()[-3000:]
    assert trained.events("alarm") == []
    assert [event["step"] for event in trained.events("step")] == list(
        range(entry, last_step(entry) + 1, entry)
    )
    assert len(trained.events("eval")) >= last_step(entry)
    losses = trained.losses()
    high = max(losses, key=lambda step: losses[step])
    assert high == -(-FAULT_STEP[entry] // entry) * entry
    assert losses[high] > 9
    assert trained.events("end")[0]["finished"]
