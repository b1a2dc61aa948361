"""Which W&B run a task file asks for, by rules alone."""

from __future__ import annotations

import pytest

from runner.wandb_run import WandbRun, sync_line, wandb_run

RUN = "0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77"
KEY = {"WANDB_API_KEY": "0" * 40}
TOY = {"wandb_project": "toy"}


def _wandb(axolotl: dict[str, object], environment: dict[str, str] = KEY) -> WandbRun | None:
    return wandb_run(axolotl, environment, run=RUN, task_file="configs/spike.yml")


def _made(axolotl: dict[str, object], environment: dict[str, str] = KEY) -> WandbRun:
    found = _wandb(axolotl, environment)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("axolotl", "environment"),
    [
        ({}, KEY),
        ({"wandb_project": None}, KEY),
        ({"wandb_project": ""}, KEY),
        ({"use_wandb": False}, KEY),
        ({"wandb_entity": "me", "wandb_watch": "all"}, KEY),
        (TOY | {"wandb_mode": "disabled"}, KEY),
        (TOY, KEY | {"WANDB_MODE": "disabled"}),
    ],
)
def test_without_a_project_or_disabled_there_is_none(
    axolotl: dict[str, object], environment: dict[str, str]
) -> None:
    """A key in the environment alone starts nothing."""
    assert _wandb(axolotl, environment) is None


def test_the_id_is_the_runs_own_whatever_the_task_file_says() -> None:
    """H43: a deleted id is refused for ever, so `wandb_run_id` is a name and no id."""
    first, again = (_made(TOY | {"wandb_run_id": "toy1"}) for _ in range(2))
    assert first.id == again.id == f"axr-{RUN}"
    assert first.name == "toy1"
    assert first.environment()["WANDB_RUN_ID"] == first.id
    assert _made(TOY | {"wandb_run_id": "toy1", "wandb_name": "a name"}).name == "a name"


def test_axolotls_own_keys_hold() -> None:
    """Project, entity and name are the task file's, before the environment's."""
    keys = TOY | {"wandb_entity": "team", "wandb_name": "night"}
    found = _made(keys, KEY | {"WANDB_ENTITY": "other", "WANDB_TAGS": "a, b,"})
    assert (found.project, found.entity, found.name) == ("toy", "team", "night")
    assert found.tags == ("a", "b")
    assert found.environment() == {
        "WANDB_RUN_ID": f"axr-{RUN}",
        "WANDB_RESUME": "allow",
        "WANDB_PROJECT": "toy",
        "WANDB_ENTITY": "team",
        "WANDB_NAME": "night",
        "WANDB_TAGS": "a,b",
        "WANDB_MODE": "shared",
    }


def test_a_run_without_a_name_is_named_after_its_task_file() -> None:
    """W&B would invent two words."""
    assert _made(TOY).name == "spike-0bd1c5a4"
    assert _made({"use_wandb": True}).project == "huggingface"


@pytest.mark.parametrize(
    ("axolotl", "environment", "mode", "why"),
    [
        (TOY, KEY, "shared", ""),
        (TOY, KEY | {"WANDB_MODE": "online"}, "shared", ""),
        (TOY, {}, "offline", "there is no WANDB_API_KEY"),
        (TOY, {"WANDB_API_KEY": ""}, "offline", "there is no WANDB_API_KEY"),
        (TOY, KEY | {"WANDB_MODE": "offline"}, "offline", "WANDB_MODE is offline"),
        (TOY | {"wandb_mode": "offline"}, KEY, "offline", "WANDB_MODE is offline"),
        (TOY | {"wandb_mode": "online"}, KEY | {"WANDB_MODE": "offline"}, "shared", ""),
        (TOY | {"wandb_mode": "online"}, {}, "offline", "there is no WANDB_API_KEY"),
    ],
)
def test_without_a_key_it_is_offline_by_rule(
    axolotl: dict[str, object], environment: dict[str, str], mode: str, why: str
) -> None:
    """H45: nobody is asked for one, on no terminal."""
    found = _made(axolotl, environment)
    assert (found.mode, found.why_offline) == (mode, why)


def test_the_sync_line_names_every_file_and_one_run() -> None:
    """What several processes wrote offline goes into one run."""
    line = sync_line("runs/a b", "axr-1")
    assert line == "wandb sync --id axr-1 'runs/a b'/wandb/offline-run-*"
