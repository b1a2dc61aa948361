"""Which W&B run belongs to a run, and how both sides open it.

One run is one W&B run: its id follows from the run's own, so it is the same over attempts, resumes
and revived parents, and never one that was used before. A deleted W&B id can never be used again,
so the task file's `wandb_run_id` only gives the run's name.

Several processes write into it: the control side, and the trainer of each attempt. Online that is
W&B's shared mode, in which each writer must open it (one that does not overwrites the others' rows:
wandb issue 12269). Offline each writes a file of its own under the same id.

Not covered: keys that `wandb login` left in a file; they would not reach a pod.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

from runner.secrets import scrub

Mode = Literal["shared", "offline"]

# Without settings of W&B nothing of it may start: also not because of a key in the environment.
OFF = {"WANDB_MODE": "disabled"}
NO_KEY = "there is no WANDB_API_KEY"
DEFAULT_PROJECT = "huggingface"  # transformers' own, where a task file only says `use_wandb: true`
ADDRESS = "https://wandb.ai"


@dataclass(frozen=True)
class WandbRun:
    """The W&B run of a run; `entity` None is the key's own, `why_offline` says which rule made it
    so.
    """

    id: str
    project: str
    entity: str | None
    name: str
    tags: tuple[str, ...]
    mode: Mode
    why_offline: str = ""

    def environment(self) -> dict[str, str]:
        """The variables with which any wandb on the pod opens this very run."""
        given = {
            "WANDB_ENTITY": self.entity,
            "WANDB_TAGS": ",".join(self.tags),
        }
        return {
            "WANDB_RUN_ID": self.id,
            "WANDB_RESUME": "allow",
            "WANDB_PROJECT": self.project,
            "WANDB_NAME": self.name,
            "WANDB_MODE": self.mode,
            **{name: value for name, value in given.items() if value},
        }


def wandb_run(
    axolotl: Mapping[str, object], environment: Mapping[str, str], *, run: str, task_file: str
) -> WandbRun | None:
    """The W&B run that a task file asks for, None where it asks for none or `disabled`.

    `environment` holds the WANDB_* variables; the task file goes before them, as in axolotl.
    """
    project = _text(axolotl.get("wandb_project"))
    if not project and not axolotl.get("use_wandb"):
        return None
    wanted = (_text(axolotl.get("wandb_mode")) or environment.get("WANDB_MODE") or "").lower()
    if wanted == "disabled":
        return None
    asked, keyless = wanted in ("offline", "dryrun"), not environment.get("WANDB_API_KEY")
    name = _text(axolotl.get("wandb_name")) or _text(axolotl.get("wandb_run_id"))
    tags = environment.get("WANDB_TAGS", "").split(",")
    return WandbRun(
        id=f"axr-{run}",
        project=project or environment.get("WANDB_PROJECT") or DEFAULT_PROJECT,
        entity=_text(axolotl.get("wandb_entity")) or environment.get("WANDB_ENTITY") or None,
        name=scrub(name) or f"{PurePosixPath(task_file).stem}-{run[:8]}",
        tags=tuple(tag.strip() for tag in tags if tag.strip()),
        mode="offline" if asked or keyless else "shared",
        why_offline=f"WANDB_MODE is {wanted}" if asked else NO_KEY if keyless else "",
    )


def sync_line(folder: str, wandb_id: str) -> str:
    """The command that uploads what was written offline below a run's folder, all of it into one
    run.
    """
    return f"wandb sync --id {wandb_id} {shlex.quote(folder)}/wandb/offline-run-*"


def address(entity: str, project: str, wandb_id: str, base: str = ADDRESS) -> str:
    """Where W&B shows a run of a known entity."""
    return f"{base.rstrip('/')}/{quote(entity)}/{quote(project)}/runs/{quote(wandb_id)}"


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, bool) else str(value).strip()
