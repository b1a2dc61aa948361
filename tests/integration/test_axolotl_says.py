"""axolotl's own validation beside ours: one process of the trainer's environment for everything."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
import yaml

from runner.checks.axolotl_says import axolotl_says, capabilities
from runner.checks.gathering import Checks, check_tasks
from runner.checks.ground import Ground
from runner.checks.grounds import ground_of_file
from runner.checks.keys import VERSION
from runner.home import REPOSITORY, axolotl_environment
from runner.settings import RunnerSettings
from runner.taskfile import TaskFile, parse_task_file, read_task_file

needs_axolotl = pytest.mark.skipif(
    not (axolotl_environment() / "bin" / "python").is_file(),
    reason="the trainer's environment is not here: make setup",
)
BASE = {
    "base_model": "me/model",
    "datasets": [{"path": "me/rows", "type": "alpaca"}],
    "learning_rate": "1e-4",
    "micro_batch_size": 1,
}
# What our own table refuses; axolotl must refuse each of them too.
PAIRS: list[dict[str, object]] = [
    {"datasets": None},
    {"datasets": [{"path": "a/b", "type": "sharegpt"}]},
    {"datasets": [{"path": "a/b", "chat_template": "jinja"}]},
    {"val_set_size": 0.1, "test_datasets": [{"path": "a/b"}]},
    {"val_set_size": 0, "eval_steps": 5},
    {"val_set_size": 0.1, "eval_steps": 5, "evals_per_epoch": 1},
    {"val_set_size": 0.1, "eval_steps": 5, "eval_strategy": "epoch"},
    {"val_set_size": 0.1, "evals_per_epoch": 5, "eval_strategy": "epoch"},
    {"do_bench_eval": True},
    {"sample_packing": True, "eval_table_size": 2},
    {"save_steps": 5, "save_strategy": "epoch"},
    {"save_steps": 5, "saves_per_epoch": 1},
    {"save_strategy": "best"},
    {"early_stopping_patience": 3, "save_steps": 5, "eval_steps": 3, "val_set_size": 0.1},
    {"batch_size": 2, "gradient_accumulation_steps": 2},
    {"batch_size": 2, "micro_batch_size": None},
    {"warmup_steps": 5, "warmup_ratio": 0.1},
    {"lr_groups": [{"name": "a", "modules": ["b"], "lr": 1.0}], "loraplus_lr_ratio": 2},
    {"neftune_noise_alpha": 0},
    {"neftune_noise_alpha": 1, "noisy_embedding_alpha": 1},
    {"pretraining_dataset": "a/b"},
    {"streaming": True},
    {"streaming": True, "max_steps": 5, "val_set_size": 0.1},
    {"pretraining_dataset": "a/b", "max_steps": 5, "include_tokens_per_second": True},
    {"dataset_exact_deduplication": True, "streaming": True, "max_steps": 5},
    {"chat_template": "jinja"},
    {"max_packed_sequence_len": 512},
    {"rope_scaling": {"type": "linear"}},
    {"load_in_8bit": True},
    {"adapter": "qlora"},
    {"adapter": "qlora", "load_in_4bit": True, "load_in_8bit": True},
    {"adapter": "qlora", "load_in_4bit": True, "gptq": True},
    {"adapter": "lorra"},
    {"adapter": "lora", "load_in_8bit": True, "lora_qkv_kernel": True},
    {"adapter": "lora", "trust_remote_code": True, "lora_qkv_kernel": True},
    {"adapter": "lora", "peft_layers_pattern": ["a"]},
    {"adapter": "lora", "lora_target_parameters": ["a"], "lora_dropout": 0.1},
    {"adapter": "lora", "relora": True},
    {"adapter": "lora", "relora": True, "jagged_restart_steps": 5, "deepspeed": "x.json"},
    {"cut_cross_entropy": True, "chunked_cross_entropy": True},
    {"unsloth_rope": True},
    {"attn_implementation": "flash"},
    {"attn_implementation": "sdpa", "flash_attention": True},
    {"activation_offloading": True},
    {"torch_compile_options": {"shape_padding": True}},
    {"fp8_config": {"recipe": "rowwise"}},
    {"gpu_memory_limit": 5, "max_memory": {0: "5GB"}},
    {"deepspeed": "x.json", "fsdp": ["full_shard"]},
    {"optimizer": "muon", "deepspeed": "x.json"},
    {"optimizer": "adamw_bnb_8bit", "fsdp_version": 2, "fsdp_config": {"offload_params": False}},
    {
        "adapter": "qlora",
        "load_in_4bit": True,
        "fsdp_version": 2,
        "fsdp_config": {"cpu_ram_efficient_loading": True},
    },
    {"rl": "dpo", "sample_packing": True},
    {"rl": "kto"},
    {"rl": "ebft"},
    {"rl": "simpo", "warmup_ratio": 0.1},
    {"rl": "grpo", "trl": {"num_generations": 3}},
    {"base_model": "mosaicml/mpt-7b", "gradient_checkpointing": True},
    {"s2_attention": True},
    {"flash_attn_rms_norm": True},
]
# (what is added, the line that axolotl's word must stand on; the base has 6 lines)
PLACED = [
    ("lora_r: many\nadapter: lora", 7),
    ("sequence_len: 512\ngradient_checkpointing: 5x", 8),
    ("datasets:\n  - path: a/b\n  - path: a/c\n    shards: x", 10),
    ("datasets_x: 1\npeft: {loftq_config: {loftq_bits: x}}", 8),
]
GOOD: list[dict[str, object]] = [
    {},
    {"plugins": ["my.own.Plugin"], "own_key": 1},
    {"bf16": True, "tf32": True, "attn_implementation": "flash_attention_2"},
    {"fp8": False, "adapter": "qlora", "load_in_4bit": True, "gpu": "x"},
    {"output_dir": None, "hub_model_id": "me/x", "loss_watchdog_threshold": 5.0},
]


def _task(values: dict[str, object]) -> TaskFile:
    kept = {key: value for key, value in {**BASE, **values}.items() if value is not None}
    return parse_task_file(yaml.safe_dump(kept, sort_keys=False), "t.yml")


@needs_axolotl
@pytest.mark.integration
def test_axolotl_refuses_what_we_refuse_and_says_where() -> None:
    """H05: each pair of our table, its own word for values of a wrong kind, and no false stop."""
    pairs = [_task(values) for values in PAIRS]
    base = yaml.safe_dump(BASE, sort_keys=False)
    assert base.count("\n") == 6
    placed = [parse_task_file(base + added, "t.yml") for added, _ in PLACED]
    good = [_task(values) for values in GOOD]
    for values, task in zip(PAIRS, pairs, strict=True):
        (ours,) = check_tasks([(task, Ground(("local",)))])
        assert "axolotl-refuses" in {each.code for each in ours.findings}, values

    said = axolotl_says([*pairs, *placed, *good], axolotl_environment())

    for values, each in zip(PAIRS, said, strict=False):
        assert [found.level for found in each.findings][:1] == ["stop"], (values, each)
    for (added, line), each in zip(PLACED, said[len(PAIRS) :], strict=False):
        assert [found.line for found in each.findings] == [line], (added, each)
        assert all(f"axolotl {VERSION}" in found.message for found in each.findings)
    for values, each in zip(GOOD, said[len(PAIRS) + len(PLACED) :], strict=True):
        assert each.findings == (), values


@pytest.mark.parametrize(
    ("gpu", "what"),
    [
        ([], "sm_90"),
        (["NVIDIA A40"], "sm_86"),
        (["Tesla T4"], "sm_75"),
        (["NVIDIA H100 80GB HBM3"], "sm_90"),
        (["NVIDIA A100 80GB PCIe", "RTX A5000"], "sm_86"),
        (["RTX 4090", "NVIDIA A40"], "sm_89"),
        (["NVIDIA B200"], "sm_100"),
        (["Something New"], "sm_90"),
    ],
)
def test_axolotl_is_told_of_the_machine_that_will_be_rented(gpu: list[str], what: str) -> None:
    """Not of this one, which may have no GPU."""
    named = {"gpu": gpu} if gpu else {}
    found = capabilities(RunnerSettings.model_validate({**named, "gpu_count": [2]}))
    assert found["compute_capability"] == what
    assert found["bf16"] == (what != "sm_75")
    assert found["n_gpu"] == 2


def test_without_axolotl_there_is_a_note(tmp_path: Path) -> None:
    """No environment, one that does not work: never a stop."""
    assert axolotl_says([_task({})], tmp_path)[0].findings == ()
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'no module named axolotl' >&2; exit 1\n")
    python.chmod(0o755)
    (said,) = axolotl_says([_task({})], tmp_path)
    assert said.findings == ()
    assert said.notes == ("axolotl's own validation did not work: no module named axolotl",)


# What of axolotl's own examples would not start, and why.
STOPPED = {
    "archived/falcon/config-7b-qlora.yml": "early_stopping_patience",
    "archived/jeopardy-bot/config.yml": "tokens",
    "archived/mpt-7b/config.yml": "tokens",
    "archived/pythia-12b/config.yml": "max_packed_sequence_len",
    "archived/redpajama/config-3b.yml": "tokens",
    "archived/stablelm-2/1.6b/fft.yml": "flash_attn_rms_norm",
    "archived/stablelm-2/1.6b/lora.yml": "flash_attn_rms_norm",
    "archived/xgen-7b/xgen-7b-8k-qlora.yml": "early_stopping_patience",
    "cloud/baseten.yaml": "base_model",  # settings of a cloud, no configuration
    "cloud/modal.yaml": "base_model",
    "expert_parallel/qwen3_30ba3b_ep_fft_4gpu.yaml": "warmup_steps",  # 0.03: meant as a ratio
    "expert_parallel/qwen3_30ba3b_ep_fsdp_fft_4gpu.yaml": "warmup_steps",
    "expert_parallel/qwen3_30ba3b_ep_lora_4gpu.yaml": "warmup_steps",
    "llama-3/diffusion/sft-1b.yaml": "save_strategy",
    "mistral4/fft-text.yml": "optimizer",
    "mistral4/fft-vision.yml": "optimizer",
    "neutrino/8b-ternary-qat-sft-fsdp2.yml": "base_model",  # what another example trains
    "orpheus/finetune.yml": "hub_model_id",  # a placeholder
}
# Of these only axolotl itself knows that a value has the wrong kind.
ONLY_AXOLOTL = {"tokens", "warmup_steps"}


def _examples() -> Path:
    """The examples of axolotl's source distribution: AXR_AXOLOTL_SDIST names it or its unpacked
    folder, else pip fetches it once.
    """
    given = os.environ.get("AXR_AXOLOTL_SDIST")
    if given and Path(given).is_dir():
        return Path(given) / "examples"
    cache = REPOSITORY / ".runner" / "cache"
    folder = cache / f"axolotl-{VERSION}"
    if folder.is_dir():
        return folder / "examples"
    archive = Path(given) if given else cache / f"axolotl-{VERSION}.tar.gz"
    if not archive.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        words = ["--no-deps", "--no-binary", "axolotl", "-q", "-d", str(cache)]
        command = [sys.executable, "-m", "pip", "download", f"axolotl=={VERSION}", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"pip can't fetch axolotl's sources: {done.stderr.strip()[-200:]}")
    with tarfile.open(archive) as packed:
        packed.extractall(cache, filter="data")
    return folder / "examples"


@pytest.mark.integration
def test_axolotls_own_examples_start_or_are_stopped_with_the_right_reason() -> None:
    """H05: with axolotl's own word where it is here; no other example is stopped."""
    examples = _examples()
    files = sorted(path for path in examples.rglob("*.y*ml") if path.is_file())
    tasks = [read_task_file(file) for file in files]
    asked = [
        (task, ground_of_file(file, task, {})) for file, task in zip(files, tasks, strict=True)
    ]
    here = (axolotl_environment() / "bin" / "python").is_file()
    found = check_tasks(asked, axolotl=axolotl_environment() if here else None)
    stopped = {
        file.relative_to(examples).as_posix(): _first_stop(each)
        for file, each in zip(files, found, strict=True)
        if each.verdict == "stop"
    }
    expected = {file: key for file, key in STOPPED.items() if here or key not in ONLY_AXOLOTL}
    assert stopped == expected
    assert len(files) > 250
    print(Counter(each.verdict for each in found))


def _first_stop(found: Checks) -> str:
    return next(each.key for each in found.findings if each.level == "stop")
