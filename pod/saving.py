"""Before a pod ends: let the trainer save, and bring what only this pod has somewhere else.

Standard library only; the work is done by `python -m pod.rescue` in the worker's Python, a process
of its own, so that neither a library's threads nor its settings reach the caller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pod import trainer
from pod.rundir import RunDir

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
REPOSITORY = Path(__file__).resolve().parent.parent
INSTALL_WITHIN = 900.0


class NotSaved(RuntimeError):
    """The only copy of a model is still on this pod; the text is the one reason."""


def stop_trainer(run_dir: RunDir, seconds: float) -> None:
    """End the run's trainer, which has `seconds` to save; at once when there is none."""
    try:
        living = trainer.find(run_dir)
        if living is not None:
            living.stop(grace_s=seconds)
    except (OSError, ValueError, KeyError) as error:  # TimeoutError is an OSError
        print(f"guard: the trainer can't be stopped: {error}", flush=True)


def holds_something(run_dir: RunDir) -> bool:
    """Whether there is a model or a checkpoint here at all: a look at names, nothing more."""
    if (run_dir.path / "model").exists():
        return True
    folders = [folder for folder in (run_dir.out, run_dir.kept) if folder.is_dir()]
    names = [path.name for folder in folders for path in folder.iterdir()]
    weights = (".safetensors", ".bin", ".pt")
    return any(name.startswith("checkpoint-") or name.endswith(weights) for name in names)


def save_only_copy(
    run_dir: RunDir,
    run: str,
    environment: Mapping[str, str] = os.environ,
    *,
    within: float,
    store_only: bool = False,
) -> str:
    """Bring the run's best model to its store, else to a private repository of the hub.

    Returns where it is, or why there was nothing to bring, in one line. Safe to repeat: what is
    there already is not sent again. `within` is in seconds; `store_only` leaves the hub out. Raises
    NotSaved with one reason, also when it takes longer.
    """
    if not holds_something(run_dir):
        return "nothing: no model and no checkpoint is here"
    words = [
        "--run-dir",
        str(run_dir.path),
        "--run",
        run,
        *(["--store-only"] if store_only else []),
    ]
    try:
        command = [_python(environment), "-m", "pod.rescue", *words]
        with (run_dir.path / "rescue.log").open("ab") as output:
            answer = subprocess.run(
                command,
                env=worker_environment(environment),
                cwd=run_dir.path,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                timeout=within,
            ).stdout.decode(errors="replace")
    except subprocess.TimeoutExpired:
        raise NotSaved(f"the rescue did not end within {within:.0f} s") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise NotSaved(f"the rescue could not run: {type(error).__name__}: {error}") from error
    try:
        outcome = json.loads(answer.strip().rpartition("\n")[2])
        if "error" in outcome:
            raise NotSaved(str(outcome["error"]))
        return str(outcome["saved"])
    except (ValueError, KeyError, TypeError):
        raise NotSaved("the rescue left no word, see rescue.log") from None


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables for a process that speaks to a store.

    A task file may forbid the trainer to ask the hub; its store is there nevertheless. Xet's
    transfers are known to stand still.
    """
    passed = {name: value for name, value in environment.items() if name not in OFFLINE}
    return {"HF_HUB_DISABLE_XET": "1", **passed, "PYTHONPATH": str(REPOSITORY)}


def _python(environment: Mapping[str, str]) -> str:
    """The worker's Python; made first where a container has come back without its disk."""
    given = environment.get("AXR_PYTHON")
    if given:
        return given
    made = subprocess.run(
        [sys.executable, "-m", "pod.install"],
        env=worker_environment(environment),
        stdout=subprocess.PIPE,
        timeout=INSTALL_WITHIN,
        check=True,
    )
    return made.stdout.decode().strip().rpartition("\n")[2]
