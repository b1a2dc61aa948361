"""An adapter that real axolotl has trained, merged into its base by axolotl itself."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from pod.publish.card import kind_of
from pod.publish.gather import gather
from pod.publish.merge import NotMerged, merge
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.training import EXAMPLES, TrainServer, make_run

pytestmark = pytest.mark.e2e

LORA = {
    "adapter": "lora",
    "lora_r": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.0,
    "lora_target_modules": ["q_proj", "v_proj", "down_proj"],
    "max_steps": 6,
    "eval_steps": 6,
    "save_steps": 3,
}
# In the trainer's Python: the largest difference between what was merged and base + scale * B A,
# between base and merged, and how many weights an adapter belongs to.
COMPARE = """
import json, sys
from pathlib import Path
from safetensors.torch import load_file
base, adapter, merged = (load_file(path) for path in sys.argv[1:4])
scale = 8 / 4
wrong = moved = 0.0
for name, weight in base.items():
    stem = "base_model.model." + name.removesuffix(".weight")
    wanted = weight
    if f"{stem}.lora_A.weight" in adapter:
        delta = adapter[f"{stem}.lora_B.weight"] @ adapter[f"{stem}.lora_A.weight"] * scale
        wanted = weight + delta
        moved = max(moved, float(delta.abs().max()))
    wrong = max(wrong, float((merged[name] - wanted).abs().max()))
pairs = sum("lora_A" in name for name in adapter)
same = set(base) == set(merged)
print(json.dumps({"wrong": wrong, "moved": moved, "pairs": pairs, "same": same}))
"""
TRAINERS = {
    "AXR_AXOLOTL_ENV": str(axolotl_environment()),
    "AXR_REPOSITORY": str(REPOSITORY),
    "HF_HUB_OFFLINE": "1",
}


def test_the_merged_model_is_the_base_and_the_adapter(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """Weight by weight; the adapter stays beside it, and merging again is no work."""
    run_dir = make_run(tmp_path / "run", **LORA)
    assert train_server.train(run_dir).result().code == 0
    merged = merge(run_dir, {**os.environ, **TRAINERS})
    began = merged.stat().st_mtime_ns
    assert merge(run_dir, {}) == merged, "it is done once"
    assert merged.stat().st_mtime_ns == began

    model = gather(run_dir, merged)
    assert kind_of(model) == "merged"
    names = {path.name for path in model.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "adapter"} <= names
    assert not {"README.md", "debug.log", "adapter_config.json"} & names
    adapter = model / "adapter"
    assert (adapter / "adapter_config.json").is_file()
    said = subprocess.run(
        [
            str(axolotl_environment() / "bin" / "python"),
            "-c",
            COMPARE,
            str(EXAMPLES / "tiny" / "model" / "model.safetensors"),
            str(adapter / "adapter_model.safetensors"),
            str(model / "model.safetensors"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = json.loads(said)
    assert found["same"]
    assert found["pairs"] == 6
    assert found["moved"] > 1e-5, "else this test could not fail"
    assert found["wrong"] < 1e-6


def test_a_merge_that_axolotl_can_not_do_leaves_the_adapter(
    train_server: TrainServer, tmp_path: Path
) -> None:
    """Here the base is gone by then."""
    run_dir = make_run(tmp_path / "run", **LORA, seed=7)
    assert train_server.train(run_dir).result().code == 0
    text = run_dir.axolotl_file.read_text()
    run_dir.axolotl_file.write_text(
        text.replace("configs/examples/tiny/model", str(tmp_path / "no"))
    )
    with pytest.raises(NotMerged, match="axolotl merge-lora ended with code"):
        merge(run_dir, {**os.environ, **TRAINERS})
    assert not (run_dir.path / "merge").exists()
    model = gather(run_dir)
    assert kind_of(model) == "adapter"
    assert (model / "adapter_model.safetensors").is_file()
