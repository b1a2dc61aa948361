"""Preference training (`rl: dpo`) is guarded like any other."""

from __future__ import annotations

import json
import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.training import Trained, TrainServer, make_run

pytestmark = [pytest.mark.e2e, pytest.mark.chaos]

FAULT_STEP = 24


def preferences(file: Path) -> Path:
    """Rows whose preference a tiny model can learn: one word is good, the other bad."""
    chance = random.Random(0)
    with file.open("w") as out:
        for _ in range(200):
            prompt = f"Ada counts to {chance.randrange(1000)} and says: "
            words = {"chosen": "The cat mews.", "rejected": "The dog barks."}
            out.write(json.dumps({"prompt": prompt, **words}) + "\n")
    return file


@pytest.fixture(scope="module")
def runs(
    train_server: TrainServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Future[Trained]]:
    """DPO of the tiny model, without a fault and with ruined weights."""
    folder = tmp_path_factory.mktemp("rl")
    data = preferences(folder / "preferences.jsonl")
    task: dict[str, Any] = {
        "rl": "dpo",
        "datasets": [
            {
                "path": str(data),
                "ds_type": "json",
                "split": "train",
                "type": {
                    "field_prompt": "prompt",
                    "field_chosen": "chosen",
                    "field_rejected": "rejected",
                    "prompt_format": "{prompt}",
                    "chosen_format": "{chosen}",
                    "rejected_format": "{rejected}",
                },
            }
        ],
        "val_set_size": 0,
        "eval_steps": None,
        "micro_batch_size": 4,
        "learning_rate": 0.001,
        "sequence_len": 64,
    }
    fault = {"plugins": ["tests.faults.weights_once.WeightsOnce"], "fault_step": FAULT_STEP}
    return {
        "whole": train_server.train(make_run(folder / "whole", **task)),
        "spiked": train_server.train(make_run(folder / "spiked", **task, **fault)),
    }


def test_a_preference_run_reports_each_step(runs: dict[str, Future[Trained]]) -> None:
    """Armed, 40 steps with losses that fall, checkpoints, an end."""
    trained = runs["whole"].result()
    assert trained.code == 0, trained.log()[-3000:]
    (armed,) = trained.events("armed")
    assert armed["planned_steps"] == 40
    losses = trained.losses()
    assert sorted(losses) == list(range(1, 41))
    assert losses[1] == pytest.approx(0.693, abs=0.01)  # ln 2: no preference yet
    assert sum(losses[step] for step in range(31, 41)) / 10 < 0.5
    assert trained.events("alarm") == []
    assert trained.events("end")[0]["finished"]


def test_a_spike_in_a_preference_run_is_an_alarm(runs: dict[str, Future[Trained]]) -> None:
    """The loss of DPO goes up as well when the weights are ruined."""
    trained = runs["spiked"].result()
    assert trained.code != 0
    (alarm,) = trained.events("alarm")
    assert alarm["onset_step"] == FAULT_STEP + 1
    assert alarm["step"] <= FAULT_STEP + 6
    assert trained.events("end") == []
