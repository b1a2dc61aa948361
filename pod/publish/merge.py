"""The adapter merged into its base model by axolotl itself (`axolotl merge-lora`), before it is
published.

merge.yml     what axolotl is given: the run's axolotl.yml without our plugin
merge.log     what it printed
merge/merged  the merged model
merge.json    {ok, why}: how it went, so that it is done once

A merge that fails loses nothing: the adapter in `out/` is not touched. axolotl says success also
where it has matched no weight, or left experts out; its own words about that decide here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import yaml

from pod.gpus import gpus_here
from pod.integrity import is_whole, safetensors_header, weight_files
from pod.rundir import RunDir, read_json, write_json
from pod.trainer import trainer_environment
from runner.adapt import PLUGIN
from runner.sources import source_root

WITHIN = 3600.0  # seconds; 70 billion parameters are 140 GB to read and to write
_APPLIED = re.compile(r"Applied LoRA to (\d+)/\d+ tensors")
_INCOMPLETE = re.compile(r"MERGE INCOMPLETE|No LoRA weights were matched|re-quant skipped")


class NotMerged(RuntimeError):
    """There is no merged model; the text is the one reason."""


def merge(
    run_dir: RunDir, environment: Mapping[str, str] = os.environ, *, within: float = WITHIN
) -> Path:
    """Merge the adapter in `out/` into its base, once; the folder of the merged model.

    Raises NotMerged when there is no adapter, when axolotl fails or takes longer than `within`
    seconds, and when what it wrote is no whole model with all of the adapter in it: whatever was
    wrong, this is all that is raised.
    """
    made = run_dir.path / "merge" / "merged"
    known = read_json(run_dir.path / "merge.json")
    if known is None:
        known = _once(run_dir, made, environment, within)
        write_json(run_dir.path / "merge.json", known)
    if not known["ok"]:
        raise NotMerged(str(known["why"]))
    return made


def _once(
    run_dir: RunDir, made: Path, environment: Mapping[str, str], within: float
) -> dict[str, object]:
    shutil.rmtree(made.parent, ignore_errors=True)
    try:
        if not (run_dir.out / "adapter_config.json").is_file():
            raise NotMerged("the training made no adapter")
        _run(run_dir, made.parent, environment, within)
        _check(run_dir, made)
    except Exception as error:  # whatever it is: there is an adapter to publish
        shutil.rmtree(made.parent, ignore_errors=True)  # the upload may need the room
        why = str(error) if isinstance(error, NotMerged) else f"{type(error).__name__}: {error}"
        return {"ok": False, "why": why}
    return {"ok": True, "why": ""}


def _run(run_dir: RunDir, target: Path, environment: Mapping[str, str], within: float) -> None:
    config = yaml.safe_load(run_dir.axolotl_file.read_text(encoding="utf-8"))
    config |= {
        "plugins": [name for name in config.get("plugins") or [] if name != PLUGIN],
        "output_dir": str(target),
        "lora_model_dir": str(run_dir.out),
    }
    file = run_dir.path / "merge.yml"
    file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    axolotl_env = Path(environment["AXR_AXOLOTL_ENV"])
    root = source_root(run_dir.path, Path(environment["AXR_REPOSITORY"]))  # as for the training
    with (run_dir.path / "merge.log").open("wb") as output:
        try:
            code = subprocess.run(
                [str(axolotl_env / "bin" / "axolotl"), "merge-lora", str(file)],
                cwd=root,
                env=trainer_environment(
                    {**environment, **_downloads(run_dir), "AXOLOTL_LOG_LEVEL": "INFO"},
                    axolotl_env=axolotl_env,
                    run_dir=run_dir,
                    gpu=bool(gpus_here(environment)),
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=within,
            ).returncode
        except subprocess.TimeoutExpired:
            raise NotMerged(f"axolotl merge-lora did not end within {within:.0f} s") from None
    if code:
        raise NotMerged(f"axolotl merge-lora ended with code {code}: {_last_line(run_dir)}")


def _downloads(run_dir: RunDir) -> dict[str, str]:
    """Where the base lies already (`fetched.json`): all of a repository is fetched otherwise, its
    weights in other formats, too.
    """
    noted = read_json(run_dir.path / "fetched.json") or {}
    if not noted.get("cache"):
        return {}
    offline = {"HF_HUB_OFFLINE": "1"} if noted.get("offline") else {}
    return {"HF_HUB_CACHE": str(noted["cache"]), **offline}


def _check(run_dir: RunDir, made: Path) -> None:
    said = _log(run_dir)
    if incomplete := _INCOMPLETE.search(said):
        raise NotMerged(f"axolotl merge-lora says: {incomplete[0]}, see merge.log")
    applied = _APPLIED.search(said)
    parts = _parts(run_dir)
    # The older way of merging (merge_method: legacy) counts nothing; peft fails by itself.
    if applied is None and "Running merge of LoRA with base model" not in said:
        raise NotMerged("axolotl merge-lora does not say that it merged anything")
    if applied is not None and int(applied[1]) < max(parts, 1):
        raise NotMerged(f"axolotl merge-lora merged {applied[1]} of the adapter's {parts} parts")
    names = weight_files(made) if made.is_dir() else []
    if not names or not all(is_whole(made / name) for name in names):
        raise NotMerged("axolotl merge-lora left no whole weights")


def _parts(run_dir: RunDir) -> int:
    """How many weights the adapter changes."""
    header = safetensors_header(run_dir.out / "adapter_model.safetensors") or {}
    return sum(".lora_A" in name or ".lora_embedding_A" in name for name in header)


def _last_line(run_dir: RunDir) -> str:
    lines = [line.strip() for line in _log(run_dir).splitlines() if line.strip()]
    return lines[-1][:300] if lines else "without a word"


def _log(run_dir: RunDir) -> str:
    return (run_dir.path / "merge.log").read_text(encoding="utf-8", errors="replace")
