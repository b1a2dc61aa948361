import importlib
from typing import Any

import pytest
import yaml
from prefect import Flow

from runner.home import REPOSITORY

PREFECT: dict[str, Any] = yaml.safe_load((REPOSITORY / "prefect.yaml").read_text())
NAMES = [
    "finetune/finetune",
    "dispatch/dispatch",
    "watch_repo/watch",
    "sweep/sweep",
    "prepare/pod",
    "train/pod",
    "publish/pod",
]


def _flow(entrypoint: str) -> Flow[..., Any]:
    module, _, name = entrypoint.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, Flow)
    return found


def test_the_deployments_are_the_ones_that_others_call() -> None:
    """Names that people type and that workflows hold stay."""
    found = [f"{_flow(each['entrypoint']).name}/{each['name']}" for each in PREFECT["deployments"]]
    assert found == NAMES


def test_finetune_takes_the_parameters_that_others_pass() -> None:
    """Their names and their order are a contract."""
    assert list(_flow("flows.finetune.finetune").parameters.properties) == [
        "task_file",
        "repository",
        "commit",
        "content",
        "cloud",
    ]


@pytest.mark.parametrize("deployment", PREFECT["deployments"], ids=NAMES)
def test_no_flow_is_retried_or_limited_where_that_would_train_twice(
    deployment: dict[str, Any],
) -> None:
    """Retries turn LossSpike into AwaitingRetry; a limit's lease dies with the server."""
    assert not _flow(deployment["entrypoint"]).retries
    if deployment["name"] == "pod":
        assert "concurrency_limit" not in deployment


def test_no_automation_of_ours_ends_a_run_that_is_silent() -> None:
    """H52: Prefect's own recipe crashes healthy runs, whose clients beat every 180 s. All triggers
    of ours answer an event that somebody sends; none waits for one that does not come.
    """
    triggers = [t for each in PREFECT["deployments"] for t in each.get("triggers", [])]
    assert triggers
    for trigger in triggers:
        assert trigger["type"] == "event"
        assert trigger["expect"] == ["axolotl.config.pushed"]
        assert trigger.get("posture", "Reactive") == "Reactive"


def test_no_pull_step_runs_on_a_pod() -> None:
    """A pod holds no token for the repository."""
    assert PREFECT["pull"] == []


@pytest.mark.parametrize("name", ["sweep", "watch"])
def test_what_is_scheduled_sleeps_until_it_is_switched_on(name: str) -> None:
    """No pods, no sweeps; nobody who wants it, no looks at branches."""
    found = next(each for each in PREFECT["deployments"] if each["name"] == name)
    assert [schedule["active"] for schedule in found["schedules"]] == [False]
