"""Learning rates and other small numbers, as they are written and as axolotl will read them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from runner.finding import Finding, stop, warn
from runner.taskfile import TaskFile
from runner.values import found

RATES = ("learning_rate", "embedding_lr", "loraplus_lr_embedding", "dion_lr")
# The first two estimate the rate themselves and are started with 1.
LARGE_RATES = ("prodigy", "dadapt", "sgd", "sinkgd", "adafactor", "lomo")
COUNTS = ("micro_batch_size", "gradient_accumulation_steps", "eval_batch_size", "sequence_len")
MOST, UNUSUAL, LEAST = 10.0, 0.1, 1e-9


def rate_findings(task: TaskFile) -> Iterator[Finding]:
    """A stop for what is no rate at all, a warning for an unusual one.

    `1e-4` is text to YAML 1.1 and a number to axolotl, so it is fine.
    """
    for key in RATES:
        value = task.axolotl.get(key)
        if value is not None:
            yield from _rate(task, key, value)
    for key in COUNTS:
        value = task.axolotl.get(key)
        if value is not None and not _is_count(value):
            message = f"{key}: expected a whole number of at least 1, found {found(value)}"
            yield stop("wrong-value", message, "correct it", key=key, at=task.place(key))


def _rate(task: TaskFile, key: str, value: object) -> Iterator[Finding]:
    at = task.place(key)
    rate = _number(value)
    if rate is None:
        message = f"{key}: expected a number, found {found(value)}"
        yield stop("wrong-rate", message, _correction(value), key=key, at=at)
    elif rate < 0 or rate > MOST:
        hint = _correction(value) if rate > 0 else "write it without the sign"
        yield stop("wrong-rate", f"{key}: {value} is no learning rate", hint, key=key, at=at)
    elif rate == 0 and key == "learning_rate":
        yield warn("odd-rate", f"{key}: 0 trains nothing", "raise it", key=key, at=at)
    elif rate > UNUSUAL and not _takes_large(task):
        message = f"{key}: {value} is far above what language models are trained with"
        yield warn("odd-rate", message, "0.0001 (1e-4) is usual for LoRA", key=key, at=at)
    elif 0 < rate < LEAST:
        message = f"{key}: {value} is so small that nothing would be learned"
        yield warn("odd-rate", message, "check its exponent", key=key, at=at)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _correction(value: object) -> str:
    """`1e4` is mostly `1e-4` without its sign."""
    plain = str(value).replace(",", ".").replace(" ", "").replace(".e", "e").strip("\"'“”‘’„")
    plain = plain.replace("\u2212", "-").replace("\u2013", "-")
    for candidate in (plain, plain.replace("e", "e-").replace("E", "e-")):
        number = _number(candidate)
        if number is not None and 0 < number <= UNUSUAL:
            return f"did you mean {candidate}?"
    return "write it like 1e-4 or 0.0001"


def _takes_large(task: TaskFile) -> bool:
    return any(name in str(task.axolotl.get("optimizer")).lower() for name in LARGE_RATES)


def _is_count(value: object) -> bool:
    number = _number(value)
    return number is not None and number >= 1 and number == int(number)
