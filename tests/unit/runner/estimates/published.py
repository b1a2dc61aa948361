"""Peaks of memory that others measured and published, with the settings they state.

They were chosen for being fully stated, before any was computed. `allocated` is what tensors held
(torch.cuda.max_memory_allocated), `device` what the GPU showed as used; a figure for several GPUs
together is divided by their number. GiB; where a source says GB of what nvidia-smi shows in MiB, it
is taken as GiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.batch import Batch
from runner.estimates.model import Model, model_of
from runner.estimates.training import Training

GIB = 1024**3
FMS = (
    "https://github.com/foundation-model-stack/fms-acceleration/blob/"
    "04702cc5b9f0e198d545b88a7c6fd9ade8c50bb8/scripts/benchmarks/refs/a100_80gb.csv"
)
QWEN = "https://github.com/QwenLM/Qwen#profiling-of-memory-and-speed"
FACTORY = "https://github.com/hiyouga/LLaMA-Factory/wiki/Performance-comparison"


@dataclass(frozen=True)
class Peak:
    """One measurement; `kind` says which of the estimate's figures it is compared with."""

    name: str
    source: str
    kind: Literal["allocated", "device"]
    measured: float
    model: Model
    training: Training


def _llama(name: str, parameters: int, **config: object) -> Model:
    return model_of(name, config, header={"BF16": parameters}, untied=True)


MISTRAL = _llama(
    "Mistral-7B", 7_241_732_096, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=14336, vocab_size=32000,
)  # fmt: skip
MIXTRAL = _llama(
    "Mixtral-8x7B", 46_702_792_704, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, intermediate_size=14336, vocab_size=32000, num_local_experts=8,
    num_experts_per_tok=2,
)  # fmt: skip
LLAMA_7B = _llama(
    "Llama-2-7b", 6_738_415_616, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    intermediate_size=11008, vocab_size=32000,
)  # fmt: skip
LLAMA_70B = _llama(
    "Llama-2-70b", 68_976_648_192, hidden_size=8192, num_hidden_layers=80, num_attention_heads=64,
    num_key_value_heads=8, intermediate_size=28672, vocab_size=32000,
)  # fmt: skip
QWEN_2B = _llama(
    "Qwen-1_8B", 1_836_828_672, model_type="qwen", hidden_size=2048, num_hidden_layers=24,
    num_attention_heads=16, intermediate_size=11008, vocab_size=151936,
)  # fmt: skip
QWEN_7B = _llama(
    "Qwen-7B", 7_721_324_544, model_type="qwen", hidden_size=4096, num_hidden_layers=32,
    num_attention_heads=32, intermediate_size=22016, vocab_size=151936,
)  # fmt: skip
QWEN_14B = _llama(
    "Qwen-14B", 14_167_290_880, model_type="qwen", hidden_size=5120, num_hidden_layers=40,
    num_attention_heads=40, intermediate_size=27392, vocab_size=152064,
)  # fmt: skip
QWEN_72B = _llama(
    "Qwen-72B", 72_287_920_128, model_type="qwen", hidden_size=8192, num_hidden_layers=80,
    num_attention_heads=64, intermediate_size=49152, vocab_size=152064,
)  # fmt: skip
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def _fms(name: str, measured: int, model: Model, micro: int, **more: object) -> Peak:
    """fp16 weights, 4096 tokens a row (packed), checkpointing, flash attention, adamw_torch, one
    pass a step; LoRA of rank 16 on the attention, dropout 0; scenarios.yaml and defaults.yaml.
    """
    settings: dict[str, object] = {
        "batch": Batch(micro), "sequence": 4096, "checkpointing": "yes", "rank": 16,
        "targets": ATTENTION, "optimizer": "adamw_torch", "mixed": False, **more,
    }  # fmt: skip
    return Peak(name, FMS, "allocated", measured / GIB, model, Training(**settings))  # type: ignore[arg-type]


def _qwen(name: str, measured: float, model: Model, sequence: int, **more: object) -> Peak:
    """bf16, micro batch 1, accumulation 8, checkpointing, flash attention 2, LoRA of rank 64 on all
    linear layers with dropout 0.05, adamw_torch; the scripts below finetune/. Full training and the
    72B model with ds_config_zero3.json.
    """
    settings: dict[str, object] = {
        "batch": Batch(1, 8), "sequence": sequence, "checkpointing": "yes", "rank": 64,
        "dropout": True, "optimizer": "adamw_torch", **more,
    }  # fmt: skip
    return Peak(name, QWEN, "device", measured, model, Training(**settings))  # type: ignore[arg-type]


def _factory(name: str, measured: float, micro: int, sequence: int, **more: object) -> Peak:
    """Llama-2-7B, LoRA of rank 8 on all linear layers, flash attention 2, checkpointing; whole
    gigabytes, so half a one is within their rounding.
    """
    settings: dict[str, object] = {
        "batch": Batch(micro, 4 if micro == 1 else 2), "sequence": sequence,
        "checkpointing": "yes", "optimizer": "adamw_torch", **more,
    }  # fmt: skip
    return Peak(name, FACTORY, "device", measured, LLAMA_7B, Training(**settings))  # type: ignore[arg-type]


PUBLISHED = (
    _fms("Mistral-7B full, 4 x 4096", 72_971_724_288, MISTRAL, 4),
    _fms("Mistral-7B full, 8 x 4096", 72_972_117_504, MISTRAL, 8),
    _fms("Mistral-7B full FSDP x2, 4 x 4096", 36_763_056_128, MISTRAL, 4, sharding="fsdp", gpus=2),
    _fms("Mistral-7B LoRA, 4 x 4096", 26_108_963_328, MISTRAL, 4, method="lora"),
    _fms("Mistral-7B LoRA, 8 x 4096", 37_098_695_168, MISTRAL, 8, method="lora"),
    _fms("Mistral-7B LoRA FSDP x2, 4 x 4096", 21_433_753_600, MISTRAL, 4, method="lora",
         sharding="fsdp", gpus=2),
    _fms("Mistral-7B QLoRA, 4 x 4096", 15_860_019_712, MISTRAL, 4, method="qlora"),
    _fms("Mixtral-8x7B QLoRA, 4 x 4096", 36_218_024_448, MIXTRAL, 4, method="qlora"),
    _fms("Mixtral-8x7B LoRA FSDP x2, 2 x 4096", 57_540_387_840, MIXTRAL, 2, method="lora",
         sharding="fsdp", gpus=2),
    _fms("Llama-2-70b QLoRA, 4 x 4096", 68_159_977_472, LLAMA_70B, 4, method="qlora"),
    _fms("Llama-2-70b QLoRA FSDP x2, 2 x 4096", 46_524_471_808, LLAMA_70B, 2, method="qlora",
         sharding="fsdp", gpus=2),
    _qwen("Qwen-7B LoRA, 2048", 23.8, QWEN_7B, 2048, method="lora"),
    _qwen("Qwen-7B LoRA, 8192", 36.6, QWEN_7B, 8192, method="lora"),
    _qwen("Qwen-14B LoRA, 4096", 42.5, QWEN_14B, 4096, method="lora"),
    _qwen("Qwen-1.8B full ZeRO-3, 2048", 43.5, QWEN_2B, 2048, sharding="zero3"),
    _qwen("Qwen-7B full ZeRO-3 x2, 256", 139.2 / 2, QWEN_7B, 256, sharding="zero3", gpus=2),
    _qwen("Qwen-72B LoRA ZeRO-3 x4, 2048", 228.8 / 4, QWEN_72B, 2048, method="lora",
          sharding="zero3", gpus=4),
    _factory("Llama-2-7b LoRA, 4 x 1024", 17, 4, 1024, method="lora"),
    _factory("Llama-2-7b QLoRA, 1 x 4096", 9, 1, 4096, method="qlora"),
    _factory("Llama-2-7b QLoRA, 1 x 16384", 19, 1, 16384, method="qlora"),
    _factory("Llama-2-7b QLoRA, 1 x 32768", 32, 1, 32768, method="qlora"),
)  # fmt: skip
