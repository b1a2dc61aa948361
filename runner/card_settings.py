"""The settings of a training that a reader of a model card wants to know, by their usual names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from runner.batch import batch_of
from runner.values import plain_number

FULL = "full fine-tuning"
TEXT = "text-generation"
_ROWS = (
    ("Optimizer", "optimizer"),
    ("Learning rate schedule", "lr_scheduler"),
    ("Warm-up steps", "warmup_steps"),
    ("Warm-up ratio", "warmup_ratio"),
    ("Weight decay", "weight_decay"),
    ("Gradient clipping", "max_grad_norm"),
)
_LORA = (
    ("LoRA rank", "lora_r"),
    ("LoRA alpha", "lora_alpha"),
    ("LoRA dropout", "lora_dropout"),
    ("LoRA target modules", "lora_target_modules"),
)


def method_of(axolotl: Mapping[str, object]) -> str:
    """`QLoRA`, `LoRA`, `full fine-tuning`, with the kind of preference training before it."""
    adapter = str(axolotl.get("adapter") or "")
    named = {"lora": "LoRA", "qlora": "QLoRA"}.get(adapter, adapter) or FULL
    kind = axolotl.get("rl")
    return f"{str(kind).upper()}, {named}" if kind else named


def pipeline_of(axolotl: Mapping[str, object]) -> str:
    """What such a model does, in the hub's words."""
    if axolotl.get("reward_model"):
        return "text-classification"
    if axolotl.get("process_reward_model"):
        return "token-classification"
    return "image-text-to-text" if axolotl.get("processor_type") else TEXT


def settings_of(
    axolotl: Mapping[str, object],
    *,
    overrides: Mapping[str, object] | None = None,
    factors: Mapping[str, float] | None = None,
    processes: int = 1,
) -> dict[str, str]:
    """Name → value as the last attempt had them; what the task file leaves to axolotl is left out.

    `overrides` are keys of axolotl, `factors` multiply the task file's learning_rate and
    weight_decay, `processes` is the number of GPUs.
    """
    values = {**axolotl, **(overrides or {})}
    for name, factor in (factors or {}).items():
        number = plain_number(values.get(name))
        if number is not None and factor != 1.0:
            values[name] = f"{number * factor:g} (x{factor:g} of {number:g})"
    return dict(_rows(values, processes))


def _rows(values: Mapping[str, object], processes: int) -> Iterator[tuple[str, str]]:
    yield "Method", method_of(values)
    if values.get("adapter"):
        yield from _listed(values, _LORA)
    yield from _listed(values, (("Learning rate", "learning_rate"),))
    batch = batch_of(values)
    words = f"{batch.micro} rows × {batch.accumulation} accumulated"
    words += f" × {processes} GPUs" if processes > 1 else ""
    yield "Batch", f"{batch.effective * processes} rows ({words})"
    packed = ", packed" if values.get("sample_packing") else ""
    if values.get("sequence_len"):
        yield "Sequence length", f"{values['sequence_len']}{packed}"
    yield from _listed(values, (("Epochs", "num_epochs"), ("Most steps", "max_steps")))
    yield from _listed(values, _ROWS)
    yield "Precision", _precision(values)
    yield from _listed(values, (("Seed", "seed"),))


def _listed(
    values: Mapping[str, object], rows: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, str]]:
    for name, key in rows:
        value = values.get(key)
        if value not in (None, "", []):
            yield name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _precision(values: Mapping[str, object]) -> str:
    def chosen(key: str) -> bool:
        return values.get(key) in (True, "auto", "true", "full")

    number = next((key for key in ("bf16", "bfloat16", "fp16", "float16") if chosen(key)), "fp32")
    words = [{"bfloat16": "bf16", "float16": "fp16"}.get(number, number)]
    words += ["base model in 4 bits"] if values.get("load_in_4bit") else []
    words += ["base model in 8 bits"] if values.get("load_in_8bit") else []
    return ", ".join(words)
