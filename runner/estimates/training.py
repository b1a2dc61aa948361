"""What a task file decides about the memory and the work of its training."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from runner.batch import Batch, batch_of
from runner.estimates.model import Model
from runner.estimates.optimizers import DEFAULT
from runner.values import plain_number

Method = Literal["full", "lora", "lora 8-bit", "qlora"]
Sharding = Literal["none", "zero1", "zero2", "zero3", "fsdp"]
Loss = Literal["plain", "fused", "cut"]
Attention = Literal["flash", "sdpa", "eager"]
ADAPTERS = ("lora", "qlora", "dora", "mora")
ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SEQUENCE = 512  # axolotl's default of sequence_len


@dataclass(frozen=True)
class Training:
    """`bytes_each` are those of a weight as it is loaded, 2 or 4; `rank` and `targets` are LoRA's,
    `tables` how many embedding tables it trains as a whole beside its adapters.

    `attention`: `flash` stands for all that need no mask as wide as the rows are long, `sdpa` needs
    one, `eager` holds the scores too. `loss` says how the logits become the loss: `plain` holds all
    of them, `fused` (Liger) a part at a time, `cut` (cut cross-entropy) none. `mixed`: a sharded
    16-bit training keeps what it trains in 32 bit. `notes` say what an estimate leaves out.
    """

    method: Method = "full"
    bytes_each: int = 2
    batch: Batch = field(default_factory=Batch)
    sequence: int = SEQUENCE
    checkpointing: Literal["no", "yes", "offload"] = "no"
    attention: Attention = "flash"
    loss: Loss = "plain"
    optimizer: str = DEFAULT
    rank: int = 8
    targets: tuple[str, ...] = ALL_LINEAR
    tables: int = 0
    dropout: bool = False
    gpus: int = 1
    sharding: Sharding = "none"
    mixed: bool = True
    offload_optimizer: bool = False
    offload_weights: bool = False
    split: int = 1
    packed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of one device in one pass, when the rows are as long as they may be."""
        return self.batch.micro * self.sequence // self.split

    def trained(self, model: Model) -> int:
        """How many weights are trained."""
        if self.method == "full":
            return model.parameters
        widths = _widths(model)
        adapters = sum(
            self.rank * (wide + narrow) * times
            for target in self.targets
            for wide, narrow, times in [widths.get(target, (0, 0, 0))]
        )
        return model.layers * adapters + self.tables * model.vocabulary * model.hidden

    def adapted_inputs(self, model: Model) -> int:
        """Width of all inputs of one layer's adapters, of one token."""
        widths = _widths(model)
        used = {"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"}
        return sum(
            widths[target][0] * (model.experts_used if target in used else 1)
            for target in self.targets
            if target in widths
        )


def training_of(
    axolotl: Mapping[str, object], *, gpus: int = 1, folders: Sequence[Path] = ()
) -> Training:
    """The training of a task file's keys; `folders` are where a DeepSpeed file is looked for."""
    method = _method(axolotl)
    sharding, offload_optimizer, offload_weights, told = _sharding(axolotl, folders)
    modules = axolotl.get("lora_target_modules")
    named = tuple(str(each) for each in modules) if isinstance(modules, list) else ()
    saved = axolotl.get("lora_modules_to_save")
    split = int(plain_number(axolotl.get("context_parallel_size")) or 1)
    checkpointing = axolotl.get("gradient_checkpointing")
    offloading = bool(axolotl.get("activation_offloading")) or checkpointing in (
        "offload",
        "offload_disk",
    )
    return Training(
        method=method,
        bytes_each=2 if _is_half(axolotl) else 4,
        batch=batch_of(axolotl),
        sequence=int(plain_number(axolotl.get("sequence_len")) or SEQUENCE),
        checkpointing="offload"
        if offloading and checkpointing
        else "yes"
        if checkpointing
        else "no",
        attention=_attention(axolotl),
        loss=_loss(axolotl),
        optimizer=str(axolotl.get("optimizer") or DEFAULT),
        rank=int(plain_number(axolotl.get("lora_r")) or 8),
        targets=_targets(axolotl, named),
        tables=len(saved) if isinstance(saved, list) else 0,
        dropout=(plain_number(axolotl.get("lora_dropout")) or 0.0) > 0,
        gpus=gpus,
        sharding=sharding,
        offload_optimizer=offload_optimizer,
        offload_weights=offload_weights,
        split=max(1, split),
        packed=bool(axolotl.get("sample_packing")),
        notes=(*told, *_left_out(axolotl, named)),
    )


def _targets(axolotl: Mapping[str, object], named: tuple[str, ...]) -> tuple[str, ...]:
    linear = axolotl.get("lora_target_linear") or axolotl.get("lora_target_modules") == "all-linear"
    return tuple(dict.fromkeys((*(ALL_LINEAR if linear or not named else ()), *named)))


def _method(axolotl: Mapping[str, object]) -> Method:
    if axolotl.get("adapter") not in ADAPTERS:
        return "full"
    if axolotl.get("load_in_4bit") or axolotl.get("adapter") == "qlora":
        return "qlora"
    return "lora 8-bit" if axolotl.get("load_in_8bit") else "lora"


def _is_half(axolotl: Mapping[str, object]) -> bool:
    """As axolotl's choice of torch_dtype; `bf16: auto` is yes on every GPU that can be rented."""
    names = ("bf16", "fp16", "bfloat16", "float16", "load_in_8bit")
    return any(axolotl.get(name) for name in names)


def _attention(axolotl: Mapping[str, object]) -> Attention:
    """Without a word of it transformers takes sdpa, which axolotl gives a mask for padded rows."""
    asked = axolotl.get("attn_implementation")
    if asked == "eager" or axolotl.get("eager_attention"):
        return "eager"
    kernels = ("flash_attention", "xformers_attention", "flex_attention", "sage_attention")
    if asked not in (None, "sdpa") or any(axolotl.get(name) for name in kernels):
        return "flash"
    return "sdpa"


def _loss(axolotl: Mapping[str, object]) -> Loss:
    if axolotl.get("cut_cross_entropy"):
        return "cut"
    fused = ("liger_fused_linear_cross_entropy", "chunked_cross_entropy")
    return "fused" if any(axolotl.get(name) for name in fused) else "plain"


def _sharding(
    axolotl: Mapping[str, object], folders: Sequence[Path]
) -> tuple[Sharding, bool, bool, tuple[str, ...]]:
    """How weights are spread, and whether optimizer and weights wait in the machine's memory."""
    deepspeed = axolotl.get("deepspeed")
    if deepspeed:
        return _zero(deepspeed, folders)
    fsdp, config = axolotl.get("fsdp"), axolotl.get("fsdp_config")
    if not (fsdp or config):
        return "none", False, False, ()
    plain = {
        str(key).removeprefix("fsdp_"): value
        for key, value in (config.items() if isinstance(config, dict) else ())
    }
    offload = bool(plain.get("offload_params")) or "offload" in str(fsdp or "")
    partly = plain.get("reshard_after_forward") is False or "GRAD_OP" in str(
        plain.get("sharding_strategy", "")
    )
    return ("zero2" if partly else "fsdp"), offload, offload and not partly, ()


def _zero(
    deepspeed: object, folders: Sequence[Path]
) -> tuple[Sharding, bool, bool, tuple[str, ...]]:
    stages: dict[int, Sharding] = {1: "zero1", 2: "zero2", 3: "zero3"}
    found = deepspeed if isinstance(deepspeed, Mapping) else _read_json(str(deepspeed), folders)
    zero = found.get("zero_optimization") if found else None
    if isinstance(zero, Mapping):
        stage = stages.get(int(plain_number(zero.get("stage")) or 0), "none")
        optimizer, weights = (_is_offloaded(zero, kind) for kind in ("optimizer", "param"))
        return stage, optimizer, weights, ()
    name = Path(str(deepspeed)).name
    match = re.search(r"zero_?-?([123])", name)
    if match is None:
        return "none", False, False, (f"deepspeed: {deepspeed} is not read: nothing is sharded",)
    offload = "offload" in name
    told = (f"deepspeed: {deepspeed} is taken for ZeRO {match[1]} by its name",)
    return stages[int(match[1])], offload and "params" not in name, offload, told


def _is_offloaded(zero: Mapping[object, object], kind: str) -> bool:
    found = zero.get(f"offload_{kind}")
    return isinstance(found, Mapping) and found.get("device", "cpu") != "none"


def _read_json(name: str, folders: Sequence[Path]) -> Mapping[str, object] | None:
    for folder in folders:
        try:
            found = json.loads((folder / name).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _left_out(axolotl: Mapping[str, object], named: tuple[str, ...]) -> list[str]:
    notes = []
    if axolotl.get("rl"):
        notes.append(f"rl: {axolotl['rl']} holds more than one model or pass; that is left out")
    parts = set(ALL_LINEAR) | {"w1", "w2", "w3"}
    strange = [each for each in named if each not in parts]
    if strange:
        notes.append(f"LoRA on {', '.join(strange)} is left out")
    if (plain_number(axolotl.get("tensor_parallel_size")) or 1) > 1:
        notes.append("tensor_parallel_size is left out")
    return notes


def _widths(model: Model) -> dict[str, tuple[int, int, int]]:
    """In and out of each linear layer that LoRA may adapt, and how often a layer has it."""
    into = (model.hidden, model.ffn, model.experts)
    back = (model.ffn, model.hidden, model.experts)
    return {
        "q_proj": (model.hidden, model.query, 1),
        "k_proj": (model.hidden, model.key_value, 1),
        "v_proj": (model.hidden, model.key_value, 1),
        "o_proj": (model.query, model.hidden, 1),
        "gate_proj": into,
        "up_proj": into,
        "down_proj": back,
        "w1": into,
        "w2": back,
        "w3": into,
    }
