"""How many steps a training has, and how long they may take.

Work for a token: 2 operations for each weight that takes part, in the forward pass, 4 in the
backward one (2 with LoRA, which needs no gradients of frozen weights), and 2 more where activations
are recomputed; attention adds 2 x layers x width x length forward, twice that backward (arXiv
2001.08361 and 2204.02311, appendix B; half of it for causal attention).

Speed: 25 to 50 % of a GPU's dense bf16 rate. An A100 (312 TFLOPS) was measured with Mistral-7B at
2775 tokens/s in full training, 3598 with LoRA and 3429 with QLoRA, with recomputation: 51, 50 and
48 % (fms-acceleration, scripts/benchmarks/refs/a100_80gb.csv); Llama-2-7B with LoRA at 2392: 31 %
(LLaMA-Factory, wiki, Performance comparison). Several GPUs: down to 70 % of that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from runner.estimates.gpus import Gpu
from runner.estimates.model import Model
from runner.estimates.rows import Rows
from runner.estimates.training import Training
from runner.values import plain_number

SLOW, FAST = 0.25, 0.50
SHARED = 0.70
PACKED = 0.95  # how full axolotl's bins are
# Until the first step: the machine and its image, then the download.
START_HOURS = (3 / 60, 20 / 60)
DOWNLOAD = (1e9, 5e7)  # bytes per second, at best and at worst
MIXTURE = 0.5  # experts get a part of the tokens each: smaller matrices


@dataclass(frozen=True)
class Steps:
    """Optimizer steps and tokens of the whole training; None is unknown, with a reason in `notes`.
    `at_most`: rows are counted as long as they may be, for nobody knows their length.
    """

    count: int | None
    tokens: float | None
    at_most: bool = False
    notes: tuple[str, ...] = ()


def steps_of(axolotl: Mapping[str, object], training: Training, rows: Rows) -> Steps:
    """The steps that the trainer will plan."""
    most = plain_number(axolotl.get("max_steps"))
    most = most if most and most > 0 else None
    epochs = plain_number(axolotl.get("num_epochs")) or 1.0
    batch = training.batch.effective * max(1, training.gpus // training.split)
    full = float(training.sequence)
    if rows.count is None or rows.tokens is None:
        if most is None:
            return Steps(None, None, notes=rows.notes)
        return Steps(int(most), most * batch * full, at_most=not training.packed, notes=rows.notes)
    trained = rows.count - _held_out(axolotl, rows.count)
    length = min(full, rows.tokens / rows.count) if rows.count else 0.0
    if training.packed:
        trained = math.ceil(trained * length / (full * PACKED))
    padded = training.packed or bool(axolotl.get("pad_to_sequence_len"))
    planned = math.ceil(math.ceil(trained / batch) * epochs) if trained else 0
    count = int(min(planned, most)) if most else planned
    return Steps(count, count * batch * (full if padded else length))


def hours(
    model: Model, training: Training, tokens: float, gpu: Gpu, count: int
) -> tuple[float, float]:
    """From the machine's start to the last step, at best and at worst."""
    work = tokens * operations(model, training)
    rate = gpu.tflops * 1e12 * count * 3600
    slow = SLOW * (SHARED if count > 1 else 1.0) * (MIXTURE if model.experts > 1 else 1.0)
    download = model.download or model.parameters * 2
    best, worst = (
        start + download / speed / 3600 for start, speed in zip(START_HOURS, DOWNLOAD, strict=True)
    )
    return best + work / (rate * FAST), worst + work / (rate * slow)


def operations(model: Model, training: Training) -> float:
    """Floating point operations for one token."""
    recomputed = 0 if training.checkpointing == "no" else 1
    passes = (3 if training.method == "full" else 2) + recomputed
    attention = 2 * model.layers * model.query * training.sequence * (3 + recomputed)
    return 2.0 * model.active * passes + attention


def _held_out(axolotl: Mapping[str, object], rows: int) -> int:
    share = plain_number(axolotl.get("val_set_size")) or 0.0
    return math.ceil(share * rows) if 0 < share < 1 else int(min(share, rows))
