"""`runner.matrix`: each combination is a task file of its own."""

from __future__ import annotations

import pytest

from runner.errors import ConfigError
from runner.matrix import variant_name, variants
from runner.taskfile import TaskFileError, parse_task_file

PLAIN = "base_model: me/base\nlearning_rate: 1e-3\ndatasets:\n  - path: me/a\n    type: alpaca\n"


def _task(matrix: str, more: str = ""):  # type: ignore[no-untyped-def]
    return parse_task_file(f"{PLAIN}{more}runner:\n  cloud: local\n  matrix: {matrix}\n", "c/a.yml")


def test_a_file_without_a_matrix_has_no_variants() -> None:
    assert variants(parse_task_file(PLAIN, "a.yml")) == []


def test_every_combination_once_with_its_values_and_without_the_matrix() -> None:
    found = variants(_task("{learning_rate: [1e-4, 0.0002], lora_r: [8, 16, 32]}"))
    assert [each.name for each in found][:2] == [
        "1-learning_rate=1e-4,lora_r=8",
        "2-learning_rate=1e-4,lora_r=16",
    ]
    assert len({each.name for each in found}) == 6
    read = [parse_task_file(each.text, "x") for each in found]
    assert [(task.axolotl["learning_rate"], task.axolotl["lora_r"]) for task in read] == [
        (rate, r) for rate in ("1e-4", 0.0002) for r in (8, 16, 32)
    ]
    assert all(task.settings.matrix == {} for task in read)
    assert all(task.axolotl["base_model"] == "me/base" for task in read)


def test_a_dotted_key_leads_into_lists_and_into_the_runner_block() -> None:
    found = variants(_task("{datasets.0.path: [me/a, you/b], runner.spike.sensitivity: [2]}"))
    read = [parse_task_file(each.text, "x") for each in found]
    assert [task.axolotl["datasets"][0]["path"] for task in read] == ["me/a", "you/b"]
    assert {task.settings.spike.sensitivity for task in read} == {2.0}
    assert variant_name("c/a.yml", found[1]) == "c/a.yml#2-path=b,sensitivity=2"


def test_what_would_collide_is_numbered_unless_the_matrix_sets_it() -> None:
    more = "hub_model_id: me/model\nwandb_name: mine\n"
    found = variants(_task("{seed: [1, 2]}", more))
    names = [parse_task_file(each.text, "x").axolotl for each in found]
    assert [(each["hub_model_id"], each["wandb_name"]) for each in names] == [
        ("me/model-1", "mine-1"),
        ("me/model-2", "mine-2"),
    ]
    set_itself = variants(_task("{hub_model_id: [me/x, me/y]}", more))
    assert [parse_task_file(each.text, "x").axolotl["hub_model_id"] for each in set_itself] == [
        "me/x",
        "me/y",
    ]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("[1, 2]", "keys with lists of values"),
        ("{seed: 1}", "a list of values for seed"),
        ("{seed: []}", "a list of values for seed"),
        ("{a: [1,2,3,4,5,6,7,8,9], b: [1,2,3,4,5,6,7,8]}", "at most 64 combinations, found 72"),
    ],
)
def test_a_matrix_that_makes_no_sense_is_refused(matrix: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _task(matrix)


@pytest.mark.parametrize("key", ["datasets.7.path", "datasets.x", "learning_rate.deeper"])
def test_a_key_that_leads_nowhere_is_named_with_its_line(key: str) -> None:
    with pytest.raises(TaskFileError, match=f"c/a.yml:8:.*{key} leads nowhere"):
        variants(_task(f"{{{key}: [1]}}"))


def test_a_variant_that_is_no_good_task_file_is_refused() -> None:
    with pytest.raises(TaskFileError, match=r"c/a\.yml#1-cloud=moon"):
        variants(_task("{runner.cloud: [moon]}"))


def test_names_are_safe_in_a_path() -> None:
    (found,) = variants(_task("{base_model: ['../../etc/my model']}"))
    assert found.name == "1-base_model=my_model"
