"""Faults put into a good task file: each is found, on its line, and nothing else stops it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from runner.checks.gathering import Checks, check_tasks, faults_of
from runner.checks.ground import Ground
from runner.checks.grounds import ground_of_file
from runner.taskfile import TaskFileError, read_task_file

GOOD = """\
base_model: HuggingFaceTB/SmolLM2-135M
datasets:
  - path: data/toy.jsonl
    type: alpaca
output_dir: ./out
micro_batch_size: 1
num_epochs: 1
learning_rate: 2e-4
save_steps: 10
"""  # 9 lines: what is added begins on line 10
RENTED = "runner:\n  cloud: runpod\n  gpu: NVIDIA A40\n"
SECRETS = {"HF_TOKEN": "hf_x", "WANDB_API_KEY": "k", "AXR_GATEWAY_URL": "https://r.example.com"}

ADDED = [
    # H01: numbers as text are fine, these are not numbers or no sensible ones
    ("learning_rate: 1e4", "stop", "wrong-rate", 8),
    ("learning_rate: 1,e-4", "stop", "wrong-rate", 8),
    ("learning_rate: -2e-5", "stop", "wrong-rate", 8),
    ("learning_rate: “2e-5”", "stop", "wrong-rate", 8),
    ("learning_rate: .nan", "stop", "wrong-rate", 8),
    ("learning_rate: 0.5", "warn", "odd-rate", 8),
    ("learning_rate: 0", "warn", "odd-rate", 8),
    ("learning_rate: 1e-40", "warn", "odd-rate", 8),
    ("micro_batch_size: 0", "stop", "wrong-value", 6),
    ("micro_batch_size: two", "stop", "wrong-value", 6),
    # H02
    ("output_dir: ./out-b", "warn", "duplicate-key", 10),
    # H04
    ("auto_resume_from_checkpoint: true", "warn", "unknown-key", 10),
    ("save_step: 50", "warn", "unknown-key", 10),
    ("wandb_runid: x", "warn", "unknown-key", 10),
    ("liger_rope: true", "warn", "plugin-key", 10),
    ("max_price_per_hour: 1", "warn", "misplaced", 10),
    ("runner: {max_pric_per_hour: 1.0}", "stop", "unknown-key", 10),
    ("runer: {max_hours: 1}", "stop", "unknown-block", 10),
    ("fsdp_config: {transformer_layer_class_to_wrap: X}", "warn", "unknown-key", 10),
    ("trl: {num_generation: 2}", "warn", "unknown-key", 10),
    # H05 and the other pairs
    ("val_set_size: 0\neval_steps: 200", "stop", "axolotl-refuses", 11),
    ("val_set_size: 0.1\ntest_datasets: [{path: a/b}]", "stop", "axolotl-refuses", 10),
    ("val_set_size: 0.1\neval_steps: 5\nevals_per_epoch: 2", "stop", "axolotl-refuses", 12),
    ("saves_per_epoch: 2", "stop", "axolotl-refuses", 10),
    ("save_strategy: epoch", "stop", "axolotl-refuses", 10),
    ("load_in_8bit: true", "stop", "axolotl-refuses", 10),
    ("adapter: qlora", "stop", "axolotl-refuses", 10),
    ("adapter: lorra", "stop", "axolotl-refuses", 10),
    ("warmup_steps: 5\nwarmup_ratio: 0.1", "stop", "axolotl-refuses", 10),
    ("batch_size: 8\ngradient_accumulation_steps: 2", "stop", "axolotl-refuses", 10),
    ("rl: dpo\nsample_packing: true", "stop", "axolotl-refuses", 11),
    ("deepspeed: ds.json\nfsdp: [full_shard]", "stop", "axolotl-refuses", 10),
    ("chat_template: jinja", "stop", "axolotl-refuses", 10),
    ("attn_implementation: flash", "stop", "axolotl-refuses", 10),
    ("attn_implementation: sdpa\nflash_attention: true", "stop", "axolotl-refuses", 11),
    ("max_packed_sequence_len: 2048", "stop", "axolotl-refuses", 10),
    ("unsloth_rms_norm: true", "stop", "axolotl-refuses", 10),
    ("early_stopping_patience: 3", "stop", "axolotl-refuses", 10),
    ("rl: grpo\ntrl: {num_generations: 3}\nmicro_batch_size: 4", "stop", "axolotl-refuses", 11),
    ("auto_find_batch_size: true", "stop", "auto-find-batch-size", 10),
    # H06
    ("deepspeed: ./dz.json", "stop", "missing-file", 10),
    ("deepspeed: deepspeed_configs/zero9.json", "stop", "missing-file", 10),
    # H07
    ("datasets: [{path: data/toy_typo.jsonl}]", "stop", "missing-file", 2),
    ("datasets: [{path: json, data_files: [data/toy.jsonl]}]", "stop", "loader-as-path", 2),
    ("datasets: [{path: data/toys, type: alpaca}]", "stop", "missing-file", 2),
    ("datasets: [{path: 'C:\\data\\toy.jsonl'}]", "stop", "missing-file", 2),
    ("test_datasets: [{path: ./none.jsonl}]", "stop", "missing-file", 10),
    ("base_model: ./modell", "stop", "missing-file", 1),
    ("base_model: /nowhere/model", "stop", "missing-file", 1),
    # H08 and evaluation
    ("sample_packing: true\nval_set_size: 0.05", "warn", "small-eval-split", 11),
    ("eval_steps: 20", "warn", "eval-without-data", 10),
    # H62 and other placeholders
    ("output_dir: $PATH_STORAGE/out", "stop", "placeholder", 5),
    ("output_dir: ~/out", "stop", "placeholder", 5),
    ('output_dir: "{{ env.OUT }}/out"', "stop", "placeholder", 5),
    ("output_dir: {{ env.OUT }}/out", "stop", "yaml", 5),
    ("hub_model_id: <your-hub-model-id>", "stop", "placeholder", 10),
    ("dataset_prepared_path: /path/to/prepared", "stop", "placeholder", 10),
    ("hub_model_id: your-username/model", "warn", "placeholder", 10),
    # what is there too often, or not at all
    ("base_model:", "stop", "missing-key", 1),
    ("save_only_model: true", "warn", "save-only-model", 10),
    ("max_steps: 5", "warn", "rare-saves", 9),
    ("save_strategy: no", "warn", "yaml-1.1", 10),
    # characters
    ("wandb_name: a\u00a0run", "warn", "odd-character", 10),
    ("wandb_name: “run”", "warn", "odd-character", 10),
    ("sequence_len\u200b: 512", "warn", "odd-character", 10),
    ("adam_epsilon: 1e\u22128", "warn", "odd-character", 10),
    ("sequence_len:\t512", "stop", "yaml", 10),
    ("sequence_len:\u00a0512", "stop", "yaml", 10),
    # secrets
    ("wandb_api_key: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "warn", "secret-in-file", 10),
    # rented runs
    (RENTED, "stop", "model-lost", 10),
    (
        f"hub_model_id: me/x\n{RENTED}  gpu_count: [2, 1]\ndeepspeed: ds.json",
        "stop",
        "gpu-count",
        14,
    ),
    (f"dataset_prepared_path: /tmp/p\nhub_model_id: me/x\n{RENTED}", "warn", "leaves-volume", 10),
    (f"hub_model_id: me/x\n{RENTED}  env: {{HF_HOME: /root/hf}}", "warn", "leaves-volume", 14),
    (f"base_model: ../../model\nhub_model_id: me/x\n{RENTED}", "stop", "outside", 1),
    (f"base_model: ignored/model\nhub_model_id: me/x\n{RENTED}", "stop", "not-carried", 1),
    (f"base_model: /data/model\nhub_model_id: me/x\n{RENTED}", "warn", "not-carried", 1),
]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a data set of 20 rows beside the task files, and a folder git ignores."""
    root = tmp_path_factory.mktemp("faults")
    tasks = root / "tasks"
    (tasks / "data").mkdir(parents=True)
    (tasks / "data" / "toy.jsonl").write_text('{"instruction": "a"}\n' * 20)
    (tasks / "ds.json").write_text("{}")
    (tasks / "model").mkdir()
    (tasks / "model" / "config.json").write_text("{}")
    (tasks / "ignored" / "model").mkdir(parents=True)
    (tasks / "ignored" / "model" / "config.json").write_text("{}")
    (root / ".gitignore").write_text("ignored/\n")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.fixture(autouse=True)
def _gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXR_GATEWAY_URL", SECRETS["AXR_GATEWAY_URL"])


def _with(added: str) -> str:
    """The good file with these lines: keys that it has are replaced where they stand."""
    lines = GOOD.splitlines()
    rest = []
    for line in added.splitlines():
        key = line.partition(":")[0]
        place = next((n for n, old in enumerate(lines) if old.startswith(f"{key}:")), None)
        if place is None or added == "output_dir: ./out-b":
            rest.append(line)
        elif key == "datasets":
            lines[place : place + 3] = [line]
        else:
            lines[place] = line
    return "\n".join([*lines, *rest]) + "\n"


def _check(repository: Path, text: str, ground: Ground | None = None) -> Checks:
    file = repository / "tasks" / "task.yml"
    file.write_text(text, encoding="utf-8")
    try:
        task = read_task_file(file)
    except TaskFileError as error:
        return faults_of(error, text)
    (found,) = check_tasks([(task, ground or ground_of_file(file, task, SECRETS))])
    return found


def test_the_good_file_is_good(repository: Path) -> None:
    """Here and on rented machines."""
    assert _check(repository, GOOD) == Checks(())
    assert _check(repository, f"{GOOD}hub_model_id: me/x\n{RENTED}") == Checks(())


@pytest.mark.parametrize(("added", "level", "code", "line"), ADDED, ids=[a[0][:40] for a in ADDED])
def test_a_fault_is_found_on_its_line(
    repository: Path, added: str, level: str, code: str, line: int
) -> None:
    """With the right level; only a fault that stops a run makes the verdict `stop`."""
    found = _check(repository, _with(added))
    told = [(each.level, each.code, each.line) for each in found.findings]
    assert (level, code, line) in told
    stops = {each.code for each in found.findings if each.level == "stop"}
    assert stops == ({code} if level == "stop" else set()), found.findings
    assert found.verdict == level


def test_a_missing_key_has_no_line(repository: Path) -> None:
    """axolotl has no default for it."""
    text = GOOD.replace("learning_rate: 2e-4\n", "")
    (found,) = _check(repository, text).findings
    assert (found.level, found.code, found.key, found.line) == (
        *("stop", "missing-key", "learning_rate"),
        0,
    )


@pytest.mark.parametrize(
    ("added", "hint"),
    [
        ("datasets: [{path: data/toy_typo.jsonl}]", "did you mean data/toy.jsonl?"),
        ("deepspeed: ./dz.json", "did you mean ds.json?"),
        ("base_model: ./modell", "did you mean model?"),
        ("save_step: 50", "did you mean save_steps?"),
        ("auto_resume_from_checkpoint: true", "did you mean auto_resume_from_checkpoints?"),
        ("learning_rate: 1e4", "did you mean 1e-4?"),
        ("learning_rate: 2,5e-5", "did you mean 2.5e-5?"),
        ("num_generations: 2", "it belongs below trl"),
    ],
)
def test_near_misses_are_named(repository: Path, added: str, hint: str) -> None:
    """H04, H07: what is there with a name like it."""
    assert hint in {each.hint for each in _check(repository, _with(added)).findings}


@pytest.mark.parametrize(
    "added",
    [
        "learning_rate: 1e-4",
        "learning_rate: 0.00002",
        "learning_rate: 1\noptimizer: prodigy",
        "deepspeed: deepspeed_configs/zero2.json",
        "deepspeed: /workspace/axolotl/deepspeed_configs/zero3_bf16.json",
        "deepspeed: ./ds.json",
        "base_model: model",
        "datasets: [{path: tasks/data/toy.jsonl, type: alpaca}]",
        "datasets: [{path: 'data/*.jsonl', type: alpaca}]",
        "datasets: [{path: owner/set, data_files: [a/b.jsonl], type: alpaca}]",
        "datasets: [{path: s3://bucket/x.jsonl, type: alpaca}]",
        "plugins: [my.plugin.Own]\nown_key_of_plugin: 5",
        "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true",
        "val_set_size: 0.05\neval_steps: 5",
        "sample_packing: true\nval_set_size: 0.05\neval_sample_packing: false",
        "special_tokens: {pad_token: “”}",
        "defaults: &d {type: alpaca}\ntest_datasets: [{<<: *d, path: data/toy.jsonl}]",
        "wandb_project: toy",
        "fsdp_config: {fsdp_offload_params: true, version: 2}",
        "save_strategy: steps",
    ],
)
def test_what_is_right_is_left_alone(repository: Path, added: str) -> None:
    """No false alarm: H01, H06 and H07 from the other side."""
    assert _check(repository, _with(added)) == Checks(())


def test_a_file_of_windows_with_a_byte_order_mark_is_fine(repository: Path) -> None:
    """Both are taken off before axolotl reads it."""
    assert _check(repository, "\ufeff" + GOOD.replace("\n", "\r\n")) == Checks(())


def test_a_script_may_bring_what_is_missing(repository: Path) -> None:
    """`entry` runs before the training, so its files are only warned about."""
    text = _with("datasets: [{path: later.jsonl, type: alpaca}]\nrunner: {entry: ./get.sh}")
    (found,) = _check(repository, text).findings
    assert (found.level, found.code) == ("warn", "missing-file")


def test_a_tracker_without_its_key_is_warned_about(repository: Path) -> None:
    """H45: nobody is there to answer the question that it would ask."""
    text = GOOD + "wandb_project: toy\n"
    file = repository / "tasks" / "task.yml"
    file.write_text(text)
    task = read_task_file(file)
    bare = _check(repository, text, ground_of_file(file, task, {}))
    assert [(each.code, each.line) for each in bare.findings] == [("wandb-key", 10)]
    given = _check(repository, text, ground_of_file(file, task, {"WANDB_API_KEY": "k"}))
    assert given.findings == ()
    unknown = _check(repository, text, Ground(("local",)))
    assert unknown.findings == (), "a pull request knows no secrets"


@pytest.mark.parametrize(("cloud", "level"), [("local", "warn"), ("runpod", "stop")])
def test_uploading_needs_a_token(repository: Path, cloud: str, level: str) -> None:
    """H47: on a rented machine the model would be lost with it."""
    text = f"{GOOD}hub_model_id: me/x\n{RENTED.replace('runpod', cloud)}"
    file = repository / "tasks" / "task.yml"
    file.write_text(text)
    found = _check(repository, text, ground_of_file(file, read_task_file(file), {}))
    assert [(each.level, each.code, each.line) for each in found.findings] == [
        (level, "hf-token", 10)
    ]


POC = """\
runpod:
  entry: ./tasks/get.sh
  gpu: NVIDIA RTX A5000
  pod_type: INTERRUPTABLE
  max_bid_per_gpu: 1.0
  volume_mount_path: /workspace
  min_download: 500
  stop_after: -1
  env: {HF_HOME: /workspace/data/hf}
"""


def test_files_of_the_proof_of_concept_are_taken(repository: Path) -> None:
    """Warned about what RunPod no longer has; stopped only where the model would be lost."""
    kept = _check(repository, f"{GOOD}hub_model_id: me/x\n{POC}")
    assert kept.verdict == "warn"
    assert {each.code for each in kept.findings} == {"spot", "volume-path", "no-filter"}
    lost = _check(repository, GOOD + POC)
    stops = [each.code for each in lost.findings if each.level == "stop"]
    assert stops == ["model-lost"]
