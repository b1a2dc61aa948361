"""When a merge counts as one; axolotl is a script here, e2e/test_merging.py has the real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from pod.publish.merge import NotMerged, merge
from pod.rundir import RunDir, read_json, write_json
from tests.checkpoints import safetensors

SAYS_SO = 'echo "[INFO] Applied LoRA to 2/9 tensors"'
WRITES = 'mkdir -p "$OUT/merged"; cp "$ADAPTER" "$OUT/merged/model.safetensors"'


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    """A completed training of an adapter with one pair of weights."""
    made = RunDir(tmp_path / "run")
    made.out.mkdir(parents=True)
    (made.out / "adapter_config.json").write_text("{}")
    weights = safetensors(name="base_model.model.q_proj.lora_A.weight")
    (made.out / "adapter_model.safetensors").write_bytes(weights)
    config = {"adapter": "lora", "plugins": ["a.B", "pod.plugin.RunnerPlugin"], "output_dir": "x"}
    made.axolotl_file.write_text(yaml.safe_dump(config))
    return made


def environment(run_dir: RunDir, script: str) -> dict[str, str]:
    binary = run_dir.path / "venv" / "bin" / "axolotl"
    binary.parent.mkdir(parents=True, exist_ok=True)
    names = f'OUT="{run_dir.path}/merge" ADAPTER="{run_dir.out}/adapter_model.safetensors"'
    binary.write_text(f'#!/bin/bash\n{names}\necho "$@" > "{run_dir.path}/called"\n{script}\n')
    binary.chmod(0o755)
    return {
        "AXR_AXOLOTL_ENV": str(run_dir.path / "venv"),
        "AXR_REPOSITORY": str(run_dir.path),
        "PATH": "/usr/bin:/bin",
    }


def test_axolotl_merges_with_the_settings_of_the_training(run_dir: RunDir) -> None:
    """Its own file without our plugin, the trained adapter, and a folder of its own."""
    merged = merge(run_dir, environment(run_dir, f"{WRITES}\n{SAYS_SO}"))
    assert (merged / "model.safetensors").is_file()
    assert (run_dir.path / "called").read_text() == f"merge-lora {run_dir.path}/merge.yml\n"
    config = yaml.safe_load((run_dir.path / "merge.yml").read_text())
    assert config == {
        "adapter": "lora",
        "plugins": ["a.B"],
        "output_dir": str(run_dir.path / "merge"),
        "lora_model_dir": str(run_dir.out),
    }


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo CUDA out of memory; exit 3", "ended with code 3: CUDA out of memory"),
        (WRITES, "does not say that it merged anything"),
        (f'{WRITES}; echo "Applied LoRA to 0/9 tensors"', "merged 0 of the adapter's 1 parts"),
        (f'{WRITES}; echo "MERGE INCOMPLETE: experts"; {SAYS_SO}', "MERGE INCOMPLETE"),
        (SAYS_SO, "left no whole weights"),
        (
            f'{WRITES}; truncate -s 40 "$OUT/merged/model.safetensors"; {SAYS_SO}',
            "no whole weights",
        ),
        ("exec sleep 60", "did not end within 1 s"),
    ],
)
def test_a_merge_that_is_none_loses_nothing(run_dir: RunDir, script: str, why: str) -> None:
    """axolotl ends well also where it has matched no weight; its remains make room."""
    before = {path: path.read_bytes() for path in run_dir.out.iterdir()}
    with pytest.raises(NotMerged, match=why):
        merge(run_dir, environment(run_dir, script), within=1.0 if "sleep" in script else 60.0)
    assert {path: path.read_bytes() for path in run_dir.out.iterdir()} == before
    assert not (run_dir.path / "merge").exists()
    assert why in str((read_json(run_dir.path / "merge.json") or {})["why"])


def test_what_has_failed_once_is_not_tried_again(run_dir: RunDir) -> None:
    """A revived flow would wait as long a second time."""
    with pytest.raises(NotMerged):
        merge(run_dir, environment(run_dir, "exit 1"))
    (run_dir.path / "called").unlink()
    with pytest.raises(NotMerged, match="code 1"):
        merge(run_dir, environment(run_dir, f"{WRITES}\n{SAYS_SO}"))
    assert not (run_dir.path / "called").exists()


def test_the_base_is_read_where_it_was_fetched(run_dir: RunDir) -> None:
    """The whole repository would be fetched otherwise."""
    write_json(run_dir.path / "fetched.json", {"cache": "/volume/hub", "offline": True})
    script = f'{WRITES}\n{SAYS_SO}\necho "$HF_HUB_CACHE $HF_HUB_OFFLINE"'
    merge(run_dir, environment(run_dir, script))
    assert "/volume/hub 1" in (run_dir.path / "merge.log").read_text()


def test_whatever_is_wrong_there_is_an_adapter_to_publish(run_dir: RunDir) -> None:
    """Here a variable of the pod is missing."""
    with pytest.raises(NotMerged, match="KeyError: 'AXR_AXOLOTL_ENV'"):
        merge(run_dir, {})


def test_a_full_model_has_nothing_to_merge(run_dir: RunDir) -> None:
    """Nobody is called."""
    (run_dir.out / "adapter_config.json").unlink()
    with pytest.raises(NotMerged, match="made no adapter"):
        merge(run_dir, {})
    assert json.loads((run_dir.path / "merge.json").read_text())["ok"] is False
