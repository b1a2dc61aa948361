"""Pairs about adapters, quantization, attention, memory, several GPUs and RL."""

from __future__ import annotations

from runner.checks.rule import Rule, Values, below, both, number_of, removed

BUILT_IN_ADAPTERS = ("lora", "qlora", "llama-adapter")
OLD_ATTENTION = (
    "flash_attention",
    "sdp_attention",
    "flex_attention",
    "xformers_attention",
    "sage_attention",
    "eager_attention",
)
ATTENTION = (
    *("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flash_attention_4"),
    *("flash_attention_torch", "flex_attention", "xformers", "sage", "fp8"),
)
CROSS_ENTROPY = (
    "cut_cross_entropy",
    "chunked_cross_entropy",
    "liger_cross_entropy",
    "liger_fused_linear_cross_entropy",
)
UNSLOTH = (
    *("unsloth_cross_entropy_loss", "unsloth_lora_mlp", "unsloth_lora_qkv"),
    *("unsloth_lora_o", "unsloth_rms_norm", "unsloth_rope"),
)
LORA_KERNELS = ("lora_mlp_kernel", "lora_qkv_kernel", "lora_o_kernel")


def _given(values: Values, key: str) -> bool:
    return bool(values.get(key))


def _any(values: Values, keys: tuple[str, ...]) -> bool:
    return any(values.get(key) for key in keys)


def _fsdp_version(values: Values) -> str:
    inner = below(values, "fsdp_config")
    return str(values.get("fsdp_version") or inner.get("fsdp_version") or inner.get("version") or 1)


def _shards(values: Values) -> bool:
    return _given(values, "fsdp") or _given(values, "fsdp_config")


def _uneven_groups(values: Values) -> bool:
    trl = below(values, "trl")
    if values.get("rl") != "grpo" or "num_generations" not in trl:
        return False
    group = int(number_of(trl, "num_generations", 2))
    rows = number_of(trl, "generation_batch_size") or number_of(
        values, "micro_batch_size", 1
    ) * number_of(values, "gradient_accumulation_steps", 1)
    return group < 2 or rows % group != 0


def _wrong_attention(values: Values) -> bool:
    name = values.get("attn_implementation")
    return isinstance(name, str) and name not in ATTENTION and "/" not in name


MODEL_PAIRS = (
    Rule(
        ("load_in_4bit", "load_in_8bit"),
        lambda v: not _given(v, "adapter") and _any(v, ("load_in_4bit", "load_in_8bit")),
        "load_in_8bit and load_in_4bit need an adapter to train",
        "set adapter: lora or qlora, or remove them for a full fine-tune",
    ),
    Rule(
        ("adapter",),
        lambda v: v.get("adapter") == "qlora" and not _given(v, "load_in_4bit"),
        "adapter: qlora needs load_in_4bit: true",
        "set it, or use adapter: lora",
    ),
    Rule(
        ("load_in_8bit", "adapter"),
        lambda v: v.get("adapter") == "qlora" and _given(v, "load_in_8bit"),
        "adapter: qlora can't be loaded in 8 bit",
        "remove load_in_8bit",
    ),
    Rule(
        ("gptq", "adapter"),
        lambda v: v.get("adapter") == "qlora" and _given(v, "gptq"),
        "adapter: qlora can't train a GPTQ model",
        "use adapter: lora",
    ),
    Rule(
        ("adapter",),
        lambda v: (
            bool(v.get("adapter"))
            and v.get("adapter") not in BUILT_IN_ADAPTERS
            and not v.get("plugins")
        ),
        "an adapter of this name is not built into axolotl, and no plugin is listed",
        "use lora or qlora, or list its plugin under plugins:",
    ),
    Rule(
        LORA_KERNELS,
        lambda v: (
            _any(v, LORA_KERNELS) and v.get("adapter") == "lora" and _given(v, "load_in_8bit")
        ),
        "the LoRA kernels can't be used with load_in_8bit",
        "remove them, or use adapter: qlora with load_in_4bit",
    ),
    Rule(
        LORA_KERNELS,
        lambda v: _any(v, LORA_KERNELS) and _given(v, "trust_remote_code"),
        "the LoRA kernels can't be used with trust_remote_code",
        "set them to false",
    ),
    Rule(
        ("peft_layers_pattern",),
        lambda v: _given(v, "peft_layers_pattern") and not _given(v, "peft_layers_to_transform"),
        "peft_layers_pattern needs peft_layers_to_transform",
        "set both",
    ),
    Rule(
        ("lora_dropout", "lora_target_parameters"),
        lambda v: _given(v, "lora_target_parameters") and _given(v, "lora_dropout"),
        "lora_dropout must be 0 with lora_target_parameters",
        "set lora_dropout: 0",
    ),
    Rule(
        ("relora",),
        lambda v: _given(v, "relora") and not _given(v, "jagged_restart_steps"),
        "relora needs jagged_restart_steps",
        "set it",
    ),
    Rule(
        ("relora",),
        lambda v: _given(v, "relora") and (_shards(v) or _given(v, "deepspeed")),
        "relora can't be used with FSDP or DeepSpeed",
        "remove one of them",
    ),
    Rule(
        CROSS_ENTROPY,
        lambda v: sum(bool(v.get(key)) for key in CROSS_ENTROPY) > 1,
        "only one of the cross entropy optimizations can be on",
        "keep one of " + ", ".join(CROSS_ENTROPY),
    ),
    Rule(
        UNSLOTH,
        lambda v: _any(v, UNSLOTH),
        "the unsloth_… settings have been removed",
        "use lora_mlp_kernel, lora_qkv_kernel and lora_o_kernel",
    ),
    Rule(
        ("attn_implementation",),
        _wrong_attention,
        "attn_implementation is none that axolotl knows",
        "use one of " + ", ".join(ATTENTION),
    ),
    Rule(
        OLD_ATTENTION,
        lambda v: _given(v, "attn_implementation") and _any(v, OLD_ATTENTION),
        "attn_implementation can't be combined with the older attention switches",
        "keep attn_implementation alone",
    ),
    Rule(
        ("activation_offloading",),
        lambda v: _given(v, "activation_offloading") and not _given(v, "gradient_checkpointing"),
        "activation_offloading needs gradient_checkpointing",
        "set gradient_checkpointing: true",
    ),
    Rule(
        ("torch_compile_options",),
        lambda v: v.get("torch_compile_options") is not None and not _given(v, "torch_compile"),
        "torch_compile_options needs torch_compile",
        "set torch_compile: true",
    ),
    Rule(
        ("fp8_config",),
        lambda v: v.get("fp8_config") is not None and not _given(v, "fp8"),
        "fp8_config needs fp8: true",
        "set it, or remove fp8_config",
    ),
    Rule(
        ("gpu_memory_limit", "max_memory"),
        lambda v: v.get("gpu_memory_limit") is not None and v.get("max_memory") is not None,
        "max_memory and gpu_memory_limit can't be used together",
        "keep one of the two",
    ),
    both("deepspeed", "fsdp", "deepspeed and fsdp can't be used together", "keep one of the two"),
    Rule(
        ("optimizer", "deepspeed", "fsdp_config"),
        lambda v: (
            v.get("optimizer") == "muon"
            and (_given(v, "deepspeed") or (_shards(v) and _fsdp_version(v) != "2"))
        ),
        "the optimizer muon goes with neither DeepSpeed nor FSDP1",
        "use fsdp_version: 2, or another optimizer",
    ),
    Rule(
        ("optimizer", "fsdp_config"),
        lambda v: (
            v.get("optimizer") in ("adamw_8bit", "adamw_bnb_8bit")
            and bool(v.get("fsdp_config"))
            and _fsdp_version(v) == "2"
        ),
        "the 8-bit optimizers of bitsandbytes do not work with FSDP2",
        "use adamw_torch_8bit",
    ),
    Rule(
        ("load_in_4bit", "fsdp_config"),
        lambda v: (
            bool(below(v, "fsdp_config").get("cpu_ram_efficient_loading"))
            and _fsdp_version(v) == "2"
            and _given(v, "load_in_4bit")
        ),
        "FSDP2 can't load a 4-bit model with cpu_ram_efficient_loading",
        "set fsdp_config.cpu_ram_efficient_loading: false",
    ),
    Rule(
        ("sample_packing", "rl"),
        lambda v: _given(v, "sample_packing") and _given(v, "rl"),
        "sample_packing does not work with RL",
        "set sample_packing: false",
    ),
    Rule(
        ("rl",),
        lambda v: v.get("rl") == "kto" and v.get("remove_unused_columns") is not False,
        "rl: kto needs remove_unused_columns: false",
        "set it",
    ),
    Rule(
        ("rl",),
        lambda v: v.get("rl") == "ebft" and not _given(v, "ebft"),
        "rl: ebft needs the section ebft",
        "add it with mode: structured or strided",
    ),
    Rule(
        ("warmup_ratio", "rl"),
        lambda v: v.get("rl") == "simpo" and _given(v, "warmup_ratio"),
        "rl: simpo takes no warmup_ratio",
        "use warmup_steps",
    ),
    Rule(
        ("trl", "rl"),
        _uneven_groups,
        "rl: grpo needs trl.num_generations of at least 2, and micro_batch_size × "
        "gradient_accumulation_steps (or trl.generation_batch_size) a multiple of it",
        "change one of them",
    ),
    Rule(
        ("gradient_checkpointing",),
        lambda v: (
            "mpt" in str(v.get("base_model", "")).lower() and _given(v, "gradient_checkpointing")
        ),
        "MPT models can't be trained with gradient_checkpointing",
        "set it to false",
    ),
    removed("s2_attention", "remove it"),
    removed("flash_attn_rms_norm", "remove it"),
)
