"""A place to log to, and no key for it: the client would ask a question that nobody answers."""

from __future__ import annotations

from collections.abc import Iterator

from runner.checks.ground import Ground
from runner.finding import Finding, warn
from runner.taskfile import TaskFile


def tracking_findings(task: TaskFile, ground: Ground) -> Iterator[Finding]:
    """A warning where a W&B project is named and no key is there: it is logged offline then."""
    if not task.axolotl.get("wandb_project") or ground.environment is None:
        return
    if str(task.axolotl.get("wandb_mode")) in ("offline", "disabled"):
        return
    if task.settings.env.get("WANDB_MODE") in ("offline", "disabled", "dryrun"):
        return
    if not (ground.environment.get("WANDB_API_KEY") or task.settings.env.get("WANDB_API_KEY")):
        yield warn(
            "wandb-key",
            "wandb_project is set, but WANDB_API_KEY is not: W&B is used offline",
            "set it on the control side, or remove wandb_project",
            key="wandb_project",
            at=task.place("wandb_project"),
        )
