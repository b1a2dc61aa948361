"""What was fetched from the hub, written into axolotl's own keys: the commit of each repository.

A branch may move between two attempts, or between a download and the trainer's start. axolotl reads
its model, configuration and tokenizer at one revision, so that is only set where they come from one
repository; else the cache's own note of where the branch stood holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pod.fetch.inputs import SAME_REVISION, datasets
from runner.changes import Set

Record = Mapping[str, Any]  # of pod.fetch.fetching.Fetched


def pins(axolotl: Mapping[str, object], fetched: Sequence[Record]) -> list[Set]:
    """The keys to set, and their values; nothing for what already says so."""
    return [change for change in _all(axolotl, fetched) if not _holds(axolotl, change)]


def known(fetched: Sequence[Record]) -> dict[str, str]:
    """The commits by what was asked for, as a later fetch of the same run is told of them."""
    return {
        name_of(each["type"], each["repo"], each["asked"]): each["revision"] for each in fetched
    }


def name_of(kind: str, repo: str, asked: str | None) -> str:
    """What was asked for, as one word."""
    return f"{kind}:{repo}@{asked or ''}"


def _all(axolotl: Mapping[str, object], fetched: Sequence[Record]) -> Iterator[Set]:
    commits = known(fetched)
    alias = "model_revision" in axolotl
    asked = axolotl.get("model_revision" if alias else "revision_of_model")
    base = str(axolotl.get("base_model"))
    commit = commits.get(name_of("model", base, str(asked) if asked else None))
    repositories = {each["repo"] for each in fetched} - {base}
    others = any(axolotl.get(key) in repositories for key in SAME_REVISION)
    if commit and not others and not axolotl.get("gptq"):  # axolotl refuses it with gptq
        yield Set(("model_revision" if alias else "revision_of_model",), commit)
    for place, dataset in datasets(axolotl):
        asked = dataset.get("revision")
        repo = str(dataset.get("path"))
        commit = commits.get(name_of("dataset", repo, str(asked) if asked else None))
        if commit:
            yield Set((*place, "revision"), commit)


def _holds(axolotl: Mapping[str, object], change: Set) -> bool:
    value: Any = axolotl
    for step in change.path[:-1]:
        value = value[step]
    return bool(value.get(change.path[-1]) == change.value)
