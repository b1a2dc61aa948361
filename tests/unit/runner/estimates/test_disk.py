from __future__ import annotations

import pytest

from runner.estimates.disk import CACHE_PER_TOKEN, disk
from runner.estimates.rows import BYTES_PER_TOKEN, Rows
from runner.estimates.training import training_of
from tests.unit.runner.estimates.published import MISTRAL

NO_ROWS = Rows(None, None)
FULL = {"bf16": True, "optimizer": "adamw_torch"}
LORA = {**FULL, "adapter": "lora", "lora_r": 16, "lora_target_modules": ["q_proj", "v_proj"]}


def _disk(keys: dict[str, object], steps: int | None = None, gpus: int = 1) -> dict[str, float]:
    return disk(keys, MISTRAL, training_of(keys, gpus=gpus), NO_ROWS, steps).parts


def test_checkpoints_hold_weights_and_optimizer_and_one_more_is_written_before_one_goes() -> None:
    """H41: full training in 16 bit, 2 + 4 bytes a weight, of which axolotl keeps 4."""
    parts = _disk(FULL)
    assert parts["5 checkpoints"] == pytest.approx(5 * 6 * 7.241732096, rel=1e-6)
    assert parts["model"] == parts["final model"] == pytest.approx(2 * 7.241732096, rel=1e-6)


def test_checkpoints_of_lora_are_the_adapters_and_their_states() -> None:
    """32 bit: 4 + 8 bytes for each of 32 x 16 x (8192 + 5120)."""
    trained = 32 * 16 * (8192 + 5120)
    assert _disk(LORA)["5 checkpoints"] == pytest.approx(5 * 12 * trained / 1e9)


def test_sharded_trainings_save_in_32_bit() -> None:
    """Weights, their 32-bit copy and both moments under ZeRO."""
    parts = _disk({**FULL, "deepspeed": "zero2.json"}, gpus=2)
    assert parts["5 checkpoints"] == pytest.approx(5 * (2 + 4 + 8) * 7.241732096, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "steps", "count"),
    [
        ({}, None, 5),
        ({"save_total_limit": 2}, None, 5),  # the runner raises it to 4
        ({"save_total_limit": 9}, None, 10),
        ({"save_steps": 100}, 250, 3),  # two of them and the last
        ({"save_steps": 10}, 250, 5),
        ({"save_steps": 0.5}, 250, 3),
    ],
)
def test_as_many_checkpoints_count_as_there_are_at_once(
    keys: dict[str, object], steps: int | None, count: int
) -> None:
    """The limit and one, or fewer where fewer are saved."""
    assert f"{count} checkpoints" in _disk({**FULL, **keys}, steps)


def test_prepared_data_count_beside_the_files_they_come_from() -> None:
    """13 bytes a token in Arrow, and the text twice."""
    found = disk(FULL, MISTRAL, training_of(FULL), Rows(10, 1e9), None)
    assert found.parts["data"] == pytest.approx(CACHE_PER_TOKEN + 2 * BYTES_PER_TOKEN)
    assert found.total == pytest.approx(sum(found.parts.values()))
