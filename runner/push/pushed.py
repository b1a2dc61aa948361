"""The task files of a push: what it changed, without what asks to be skipped, with what is wanted
again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runner.push.changes import Changes, PassedOver, Push, changes, is_none
from runner.push.git import Git
from runner.push.rules import Rules
from runner.push.trailers import reruns, skips

LARGEST = 1_000_000  # bytes; runner.taskfile refuses more
_TOP_KEY = re.compile(r"""^(?:\{\s*)?["']?(\w+)["']?\s*:(?:\s|$)""", re.MULTILINE)
_OURS = {"runner", "runpod"}
# Beside base_model, which merges of models and other tools name too.
_AXOLOTLS = {
    "datasets",
    "pretraining_dataset",
    "micro_batch_size",
    "num_epochs",
    "max_steps",
    "learning_rate",
    "sequence_len",
    "adapter",
    "rl",
}


@dataclass(frozen=True)
class Pushed:
    """A task file of a push.

    `origin` is the commit that asks for this training: the one that changed the file last, or that
    says `Runner: rerun`. It is the same however pushes are cut, so it can name the run.
    """

    path: str
    blob: str
    origin: str


@dataclass(frozen=True)
class TaskFiles:
    """What a push starts, and what it does not start though its path fits."""

    files: tuple[Pushed, ...]
    passed_over: tuple[PassedOver, ...]
    guessed: bool = False


def task_files(git: Git, push: Push, rules: Rules, *, default: str) -> TaskFiles:
    """The task files that this push starts; none for a branch that is gone or does not count."""
    if is_none(push.after) or not rules.wants_branch(push.ref):
        return TaskFiles((), ())
    found = changes(git, push, rules, default=default)
    files, over = _changed(git, push, found)
    for again in reruns(git, found.base, push.after, rules):
        files.setdefault(again.path, Pushed(again.path, again.blob, again.commit))
    kept = {path: each for path, each in files.items() if is_task_file(read(git, each.blob))}
    over += [PassedOver(path, "no task file of axolotl") for path in files if path not in kept]
    return TaskFiles(tuple(kept[path] for path in sorted(kept)), tuple(over), found.guessed)


def is_task_file(content: bytes) -> bool:
    """True for what means to be one, also when it is broken; False for other YAML."""
    if len(content) > LARGEST:
        return True  # refused by name later
    keys = set(_TOP_KEY.findall(content.decode("utf-8", "replace").removeprefix("\ufeff")))
    return bool(keys & _OURS) or ("base_model" in keys and bool(keys & _AXOLOTLS))


def read(git: Git, blob: str) -> bytes:
    """The content of a file, cut off beyond what a task file can have."""
    return git.run("cat-file", "blob", blob)[: LARGEST + 1]


def _changed(git: Git, push: Push, found: Changes) -> tuple[dict[str, Pushed], list[PassedOver]]:
    files, over, asked = {}, list(found.passed_over), {}
    for each in found.files:
        origin = git.text("log", "-1", "--format=%H", push.after, "--", f":(literal){each.path}")
        if origin not in asked:
            asked[origin] = skips(git, origin or push.after)
        if asked[origin]:
            over.append(PassedOver(each.path, "its commit says Runner: skip"))
        else:
            files[each.path] = Pushed(each.path, each.blob, origin or push.after)
    return files, over
