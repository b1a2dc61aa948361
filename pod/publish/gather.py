"""`model/` beside the output folder: what one loads or shares, made whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from pod.completed import why_not_complete
from pod.rundir import RunDir
from runner.model_card import ADAPTER_FOLDER

# Optimizer and trainer state stay with the checkpoints.
LEFT_OUT = ("checkpoint-*", "debug.log", "runs", "*.tmp", "trainer_state.json", "training_args.bin")
# Of a merged model's base: what the hub or a download keeps for itself.
NOT_OF_BASE = (".git*", ".cache", "README.md")
# The trained ones count, not the base's: a training may add tokens and change the chat template.
TOKENIZER = (
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template.*",
    "*processor_config.json",
)


class NotHealthy(RuntimeError):
    """There is no completed training here, so nothing may be published; the text says why."""


def gather(run_dir: RunDir, merged: Path | None = None) -> Path:
    """Make `model/` of the final files, hard-linked where that is possible, so that they cost no
    disk; of a merged model, its files with the adapter in a folder of its own. Safe to repeat.

    Raises NotHealthy unless the evidence on the volume is that of a completed training.
    """
    target = run_dir.path / "model"
    if target.exists():
        return target
    why = why_not_complete(run_dir)
    if why is not None:
        raise NotHealthy(f"nothing is published of a training that did not complete: {why}")
    fresh = run_dir.path / "model.new"
    shutil.rmtree(fresh, ignore_errors=True)
    if merged is None:
        _copy(run_dir.out, fresh, LEFT_OUT)
    else:
        _copy(merged, fresh, NOT_OF_BASE)
        _copy(run_dir.out, fresh / ADAPTER_FOLDER, (*LEFT_OUT, "README.md"))
        for path in _named(run_dir.out, TOKENIZER):
            (fresh / path.name).unlink(missing_ok=True)
            link_or_copy(str(path), str(fresh / path.name))
    fresh.rename(target)
    return target


def link_or_copy(source: str, target: str) -> str:
    """A second name for a file, or a copy of it where the disk has no links."""
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
    return target


def _copy(source: Path, target: Path, left_out: Iterable[str]) -> None:
    ignore: Callable[..., set[str]] = shutil.ignore_patterns(*left_out)
    shutil.copytree(source, target, copy_function=link_or_copy, ignore=ignore)


def _named(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
