from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.estimates.training import training_of
from tests.unit.runner.estimates.published import MISTRAL, MIXTRAL


@pytest.mark.parametrize(
    ("keys", "method"),
    [
        ({}, "full"),
        ({"adapter": "lora"}, "lora"),
        ({"adapter": "lora", "load_in_8bit": True}, "lora 8-bit"),
        ({"adapter": "qlora", "load_in_4bit": True}, "qlora"),
        ({"load_in_4bit": True}, "full"),
    ],
)
def test_the_method_follows_the_adapter(keys: dict[str, object], method: str) -> None:
    """Without one the whole model is trained, whatever else is set."""
    assert training_of(keys).method == method


@pytest.mark.parametrize(
    ("keys", "size"),
    [({"bf16": "auto"}, 2), ({"fp16": True}, 2), ({"load_in_8bit": True}, 2), ({}, 4),
     ({"bf16": False, "fp16": False}, 4)],
)  # fmt: skip
def test_weights_are_loaded_as_axolotl_does(keys: dict[str, object], size: int) -> None:
    """32 bit unless a half precision is asked for."""
    assert training_of(keys).bytes_each == size


def test_lora_trains_rank_times_in_and_out_of_each_layer_it_adapts() -> None:
    """Mistral, rank 16 on q and v: 32 layers of 16 x (4096 + 4096) + 16 x (4096 + 1024)."""
    keys = {"adapter": "lora", "lora_r": 16, "lora_target_modules": ["q_proj", "v_proj"]}
    assert training_of(keys).trained(MISTRAL) == 32 * 16 * (8192 + 5120)


def test_lora_on_all_linear_layers_of_a_mixture_adapts_each_expert() -> None:
    """Mixtral, rank 8: attention once, the three matrices of each of 8 experts."""
    trained = training_of({"adapter": "lora", "lora_target_linear": True}).trained(MIXTRAL)
    attention = 8 * (2 * 8192 + 2 * 5120)
    assert trained == 32 * (attention + 8 * 3 * 8 * (4096 + 14336))


def test_modules_to_save_are_trained_whole() -> None:
    """Two tables of 32000 x 4096."""
    keys = {"adapter": "lora", "lora_modules_to_save": ["embed_tokens", "lm_head"]}
    alone = training_of({"adapter": "lora"}).trained(MISTRAL)
    assert training_of(keys).trained(MISTRAL) - alone == 2 * 32000 * 4096


def test_a_deepspeed_file_is_read_beside_the_task_file(tmp_path: Path) -> None:
    """Stage and offloading are what it says."""
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": zero}))
    found = training_of({"deepspeed": "ds.json"}, gpus=2, folders=[tmp_path])
    assert (found.sharding, found.offload_optimizer, found.offload_weights) == (
        "zero3",
        True,
        False,
    )
    assert found.notes == ()


@pytest.mark.parametrize(
    ("name", "sharding", "optimizer", "weights"),
    [
        ("deepspeed_configs/zero1.json", "zero1", False, False),
        ("deepspeed_configs/zero3_bf16.json", "zero3", False, False),
        ("deepspeed_configs/zero3_bf16_cpuoffload_all.json", "zero3", True, True),
        ("deepspeed_configs/zero3_bf16_cpuoffload_params.json", "zero3", False, True),
    ],
)
def test_axolotls_own_deepspeed_files_are_known_by_their_names(
    name: str, sharding: str, optimizer: bool, weights: bool
) -> None:
    """They lie in its image; that the name was believed is said."""
    found = training_of({"deepspeed": name})
    got = (found.sharding, found.offload_optimizer, found.offload_weights)
    assert got == (sharding, optimizer, weights)
    assert "by its name" in found.notes[0]


def test_an_unknown_deepspeed_file_shards_nothing_and_that_is_said() -> None:
    """Rather too much than too little."""
    found = training_of({"deepspeed": "mine.json"})
    assert found.sharding == "none"
    assert "is not read" in found.notes[0]


@pytest.mark.parametrize(
    ("config", "sharding", "offload"),
    [
        ({"fsdp_config": {"offload_params": True}}, "fsdp", True),
        ({"fsdp": ["full_shard", "auto_wrap"]}, "fsdp", False),
        ({"fsdp_config": {"reshard_after_forward": False}}, "zero2", False),
        ({"fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP"}}, "zero2", False),
    ],
)
def test_fsdp_is_read_with_and_without_its_prefix(
    config: dict[str, object], sharding: str, offload: bool
) -> None:
    """Version 1 and 2 of axolotl's keys."""
    found = training_of(config, gpus=2)
    assert (found.sharding, found.offload_weights) == (sharding, offload)


@pytest.mark.parametrize(
    ("keys", "attention"),
    [
        ({}, "sdpa"),
        ({"flash_attention": False}, "sdpa"),
        ({"flash_attention": True}, "flash"),
        ({"attn_implementation": "flash_attention_2"}, "flash"),
        ({"attn_implementation": "sdpa"}, "sdpa"),
        ({"attn_implementation": "eager"}, "eager"),
        ({"eager_attention": True}, "eager"),
    ],
)
def test_attention_is_that_of_the_newer_key_or_of_the_older_ones(
    keys: dict[str, object], attention: str
) -> None:
    """sdpa without a word, as transformers."""
    assert training_of(keys).attention == attention


def test_what_is_left_out_is_said() -> None:
    """A second model of a preference training, LoRA on layers of other names."""
    notes = training_of({"rl": "dpo", "adapter": "lora", "lora_target_modules": ["Wqkv"]}).notes
    assert any("rl: dpo" in note for note in notes)
    assert any("Wqkv" in note for note in notes)
