"""A resumed run is trained on the very rows that an uninterrupted one would have seen."""

from __future__ import annotations

import random
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.training import EXAMPLES, Trained, TrainServer, make_run

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

ROWS = 40
LORA = {
    "adapter": "lora",
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.1,  # so that the random numbers must go on where they were, too
    "lora_target_modules": ["q_proj", "v_proj"],
}


@dataclass(frozen=True)
class Case:
    """One way to train: about 10 micro batches an epoch, two epochs."""

    packing: bool
    accumulation: int
    workers: int
    lora: bool

    def __str__(self) -> str:
        words = [
            "packing" if self.packing else "plain",
            f"accumulation {self.accumulation}",
            f"{self.workers} workers",
            "lora" if self.lora else "full",
        ]
        return ", ".join(words)

    def changes(self, data: Path) -> dict[str, Any]:
        return {
            "datasets": [{"path": str(data), "type": "alpaca"}],
            "val_set_size": 0,
            "eval_steps": None,
            "sample_packing": self.packing,
            "sequence_len": 512,  # with packing two rows lie in a bin
            "micro_batch_size": 2 if self.packing else 4,
            "gradient_accumulation_steps": self.accumulation,
            "dataloader_num_workers": self.workers,
            "max_steps": None,
            "num_epochs": 2,
            "save_steps": 1,
            "save_total_limit": 100,
            "plugins": ["tests.faults.record_rows.RecordRows"],
            **(LORA if self.lora else {}),
        }


CASES = [
    Case(packing, accumulation, workers, lora)
    for packing in (False, True)
    for accumulation in (1, 4)
    for workers in (0, 2)
    for lora in (False, True)
]
SMOKE = [Case(False, 4, 2, True), Case(True, 1, 0, False)]


@dataclass(frozen=True)
class Resumed:
    """An uninterrupted run, its steps an epoch, and runs of it resumed from some steps."""

    whole: Trained
    per_epoch: int
    later: dict[int, Trained]


@pytest.fixture(scope="module")
def resumed(
    request: pytest.FixtureRequest,
    train_server: TrainServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[Case, Future[Resumed]]:
    """All trainings of all cases, two at a time."""
    folder = tmp_path_factory.mktemp("positions")
    rows = (EXAMPLES / "tiny" / "data.jsonl").read_text().splitlines()
    data = folder / "data.jsonl"
    data.write_text("\n".join(random.Random(1).sample(rows, ROWS)) + "\n")

    def train(case: Case) -> Resumed:
        run_dir = make_run(folder / str(CASES.index(case)), **case.changes(data))
        whole = train_server.train(run_dir).result()
        assert whole.code == 0, whole.log()[-3000:]
        steps = len(whole.rows())
        per_epoch = sum(e["epoch"] <= 1 for e in whole.events("step"))
        # early and late in the first epoch, at its end, and in the middle of the second
        places = sorted({1, per_epoch - 1, per_epoch, (per_epoch + steps) // 2})
        later = {}
        for attempt, place in enumerate(places, start=2):
            resume = train_server.train(run_dir, attempt=attempt, resume_from=place)
            later[place] = resume.result()
            assert later[place].code == 0, later[place].log()[-3000:]
        return Resumed(whole, per_epoch, later)

    with ThreadPoolExecutor(max_workers=2) as pool:
        cases = CASES if request.config.getoption("--long") else SMOKE
        return {case: pool.submit(train, case) for case in cases}


@pytest.mark.parametrize(
    "case",
    [case if case in SMOKE else pytest.param(case, marks=pytest.mark.chaos) for case in CASES],
    ids=str,
)
def test_a_resumed_run_sees_the_rows_of_an_uninterrupted_one(
    resumed: dict[Case, Future[Resumed]], case: Case
) -> None:
    """Row by row, step by step, to the end; and so the losses are the same to the last digit."""
    found = resumed[case].result()
    rows, losses = found.whole.rows(), found.whole.losses()
    for number, (place, trained) in enumerate(found.later.items(), start=2):
        assert trained.rows(number) == {step: seen for step, seen in rows.items() if step > place}
        assert trained.losses(number) == {step: x for step, x in losses.items() if step > place}


@pytest.mark.parametrize("case", SMOKE, ids=str)
def test_the_order_is_worth_comparing(resumed: dict[Case, Future[Resumed]], case: Case) -> None:
    """Every epoch has its own order, each row comes once in it, and steps hold what they should."""
    found = resumed[case].result()
    rows = found.whole.rows()
    steps = sorted(rows)
    first = [row for step in steps[: found.per_epoch] for batch in rows[step] for row in batch]
    second = [row for step in steps[found.per_epoch :] for batch in rows[step] for row in batch]
    assert first != second
    assert len(set(first)) == len(first)
    assert {len(rows[step]) for step in steps[: found.per_epoch - 1]} == {case.accumulation}
    if not case.packing:
        assert len(first) == ROWS
        assert set(second) <= set(first)  # max_steps is rounded down: a few rows are left over
