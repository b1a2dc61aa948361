"""Commits of what was fetched, in axolotl's own keys."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from runner.adapt import adapt
from runner.pinning import known, pins
from runner.taskfile import parse_task_file

COMMIT, ROWS = "c" * 40, "d" * 40
FETCHED: list[dict[str, Any]] = [
    {"type": "model", "repo": "me/model", "asked": None, "revision": COMMIT},
    {"type": "dataset", "repo": "me/rows", "asked": "v1", "revision": ROWS},
    {"type": "dataset", "repo": "me/rows", "asked": None, "revision": "e" * 40},
]


def pinned(text: str) -> str:
    task = parse_task_file(text, "run.yml")
    made = adapt(
        task, run_dir="/run", source_dir="/none", root="/none", pins=pins(task.axolotl, FETCHED)
    )
    return made.text


def test_the_model_and_each_data_set_get_their_commit() -> None:
    """By what each one asked for; comments and order stay, a local file is left alone (H40)."""
    text = """base_model: me/model  # mine
datasets:
  # the first
  - path: me/rows   # hub
    type: alpaca
  - {path: me/rows, revision: v1, type: alpaca}
  - path: other/rows
    type: alpaca
"""
    after = pinned(text)
    assert f"revision_of_model: {COMMIT}" in after
    assert "  # the first\n  - revision: " + "e" * 40 + "\n    path: me/rows   # hub\n" in after
    assert "  - {path: me/rows, revision: " + ROWS + ", type: alpaca}\n" in after
    assert "base_model: me/model  # mine\n" in after
    assert "revision" not in yaml.safe_load(after)["datasets"][2]


@pytest.mark.parametrize(
    "more",
    [
        "tokenizer_config: me/rows",  # another repository has no such commit
        "gptq: true",
    ],
)
def test_one_revision_must_fit_all_that_is_read_with_it(more: str) -> None:
    """axolotl reads model, configuration and tokenizer at one revision."""
    assert not pins({"base_model": "me/model", **yaml.safe_load(more)}, FETCHED)


def test_the_other_spelling_of_the_key_is_kept() -> None:
    """axolotl knows `model_revision` as an alias, and refuses two."""
    asked = [{**FETCHED[0], "asked": "main"}]
    (change,) = pins({"base_model": "me/model", "model_revision": "main"}, asked)
    assert change.path == ("model_revision",)
    assert not pins({"base_model": "me/model", "revision_of_model": COMMIT}, asked)


def test_commits_travel_by_what_was_asked_for() -> None:
    """A later pod of the run asks for the same."""
    assert known(FETCHED)["dataset:me/rows@v1"] == ROWS
    assert known(FETCHED)["model:me/model@"] == COMMIT
