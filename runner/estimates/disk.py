"""How much disk a training fills, in GB (1e9 bytes), and what with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runner.adapt import LEAST_CHECKPOINTS
from runner.estimates.model import Model
from runner.estimates.optimizers import keeps
from runner.estimates.rows import BYTES_PER_TOKEN, Rows
from runner.estimates.training import Training
from runner.values import plain_number

GB = 1e9
LIMIT = 4  # axolotl's default of save_total_limit
# A tokenised row in datasets' Arrow files: input_ids int32, attention_mask int8, labels int64
# (datasets.arrow_writer, OptimizedTypedSequence).
CACHE_PER_TOKEN = 13
SPARE = 2.0  # GB: logs, the trainer's own files


@dataclass(frozen=True)
class Disk:
    """`parts` add up to `total`; `checkpoints` is how many there are at the fullest moment."""

    parts: dict[str, float]
    total: float
    checkpoints: int

    def __str__(self) -> str:
        shown = [f"{name} {size:.1f}" for name, size in self.parts.items() if size >= 0.05]
        return f"about {self.total:.0f} GB of disk ({', '.join(shown)})"


def disk(
    axolotl: Mapping[str, object], model: Model, training: Training, rows: Rows, steps: int | None
) -> Disk:
    """Download, checkpoints with their optimizer, the final model, and the prepared data.

    A new checkpoint is written before the oldest one goes. Sharded trainings keep what they train
    in 32 bit, with its states.
    """
    sharded = training.sharding != "none" and training.mixed
    trained = training.trained(model)
    each = 4 if training.method != "full" or sharded else training.bytes_each
    final = trained * (training.bytes_each if training.method == "full" else each)
    states = 0.0
    if not axolotl.get("save_only_model"):
        copy = 4 if sharded else 0
        states = trained * (keeps(training.optimizer).bytes_each(each) + copy)
    count = _checkpoints(axolotl, steps)
    tokens = rows.tokens or 0.0
    parts = {
        "model": float(model.download or model.parameters * 2),
        f"{count} checkpoints": count * (final + states),
        "final model": float(final),
        "data": tokens * (CACHE_PER_TOKEN + 2 * BYTES_PER_TOKEN),
        "rest": SPARE * GB,
    }
    parts = {name: size / GB for name, size in parts.items()}
    return Disk(parts, sum(parts.values()), count)


def _checkpoints(axolotl: Mapping[str, object], steps: int | None) -> int:
    limit = int(plain_number(axolotl.get("save_total_limit")) or LIMIT)
    most = max(limit, LEAST_CHECKPOINTS) + 1
    every = plain_number(axolotl.get("save_steps"))
    if steps and every:
        every = every * steps if every < 1 else every
        return max(1, min(most, int(steps // every) + 1))
    return most
