"""Only the run's own secrets go to its pod, whatever else the control side knows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from blocks.cloud import PodOrder
from blocks.local.cloud import LocalCloud
from runner import secrets
from runner.home import Home
from runner.taskfile import parse_task_file
from tasks import ordering
from tasks.run import Order, Run

CLOUDS = ("local", "runpod", "vast")
RUN = Run("0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77", "t.yml", None, datetime.now(UTC))
# What a control side may have in its environment and no pod may.
OWN = (
    "RUNPOD_API_KEY",
    "VAST_API_KEY",
    "PREFECT_API_KEY",
    "PREFECT_API_AUTH_STRING",
    "PREFECT_SERVER_API_AUTH_STRING",
    "PREFECT_API_DATABASE_CONNECTION_URL",
    "PREFECT_CLIENT_CUSTOM_HEADERS",
    "AXR_NOTIFY_URLS",
    "AXR_SECRET_NOT_ASKED_FOR",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "SOMETHING_ELSE",
    "PYTHONPATH",
    "http_proxy",
)


@pytest.fixture(autouse=True)
def control_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A control side full of keys, each with a value of its own."""
    monkeypatch.setattr(secrets, "_learnt", {})
    monkeypatch.setattr(ordering, "installation_id", lambda: "here", raising=False)
    monkeypatch.setattr("blocks.grants.PREFECT_API_URL", type("Unset", (), {"value": lambda: None}))
    monkeypatch.setenv("AXR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AXR_GATEWAY_URL", "https://gateway.example.org")
    for name in OWN:
        monkeypatch.setenv(name, f"canary-{name}")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_run")
    monkeypatch.setenv("WANDB_API_KEY", "wandb_of_the_run")
    monkeypatch.setenv("AXR_SECRET_GIVEN", "given-to-runs")


def _order(env: str = "", **more: str) -> Order:
    lines = "".join(f"  {key}: {value}\n" for key, value in more.items())
    text = f"base_model: x\nrunner:\n  one_shot: true\n{lines}  env: {{{env}}}\n"
    return Order(parse_task_file(text, "t.yml"), ("local",))


def _pod_order(order: Order, cloud: str) -> PodOrder:
    return ordering.pod_order(RUN, order, cloud)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_no_key_of_the_control_side_reaches_a_pod(cloud: str) -> None:
    """Not those of the accounts, not those of the Prefect API, nothing that was not asked for."""
    order = _pod_order(_order("NOTE: 'say hi', EMPTY: "), cloud)
    assert "canary" not in json.dumps(dict(order.environment))
    assert "given-to-runs" not in json.dumps(dict(order.environment))
    assert order.environment["HF_TOKEN"] == "hf_of_the_run"
    assert order.environment["WANDB_API_KEY"] == "wandb_of_the_run"
    assert order.environment["NOTE"] == "say hi"
    assert "EMPTY" not in order.environment, "H18: null is absent"


def test_a_local_pod_has_a_clean_environment_as_well(tmp_path: Path) -> None:
    """All that its boot script gets, with what the local cloud adds."""
    cloud = LocalCloud(Home(tmp_path / "home"))
    order = _pod_order(_order(), "local")
    environment = cloud._environment(cloud._make(order), order)
    assert "canary" not in json.dumps(environment)
    assert "PYTHONPATH" not in environment


@pytest.mark.parametrize("cloud", CLOUDS)
def test_keys_of_a_store_go_only_where_one_is(cloud: str) -> None:
    """A run without s3:// has no use for them."""
    with_store = _pod_order(_order(checkpoint_store="s3://bucket/x"), cloud).environment
    assert with_store["AWS_SECRET_ACCESS_KEY"] == "canary-AWS_SECRET_ACCESS_KEY"
    assert "AWS_SECRET_ACCESS_KEY" not in _pod_order(_order(), cloud).environment


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_secret_that_is_named_is_filled_in_and_known_to_the_pod(cloud: str) -> None:
    """So that it is scrubbed there, though its name says nothing."""
    environment = _pod_order(_order("GIVEN: , ABSENT: "), cloud).environment
    assert environment["GIVEN"] == "given-to-runs"
    assert environment["AXR_SECRETS"] == "GIVEN"
    assert "ABSENT" not in environment
    assert secrets.scrub("said given-to-runs", environment) == "said [secret GIVEN]"


@pytest.mark.parametrize("cloud", ["runpod", "vast"])
def test_a_task_file_can_t_replace_what_guards_its_pod(cloud: str) -> None:
    """Its token, its deadline."""
    environment = _pod_order(_order("AXR_TOKEN: mine, AXR_DEADLINE: '9'"), cloud).environment
    assert environment["AXR_TOKEN"].startswith("axr1.")
    assert environment["AXR_DEADLINE"] != "9"


def test_the_password_of_a_registry_is_filled_in_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """It never stands in the task file."""
    monkeypatch.setenv("AXR_SECRET_REGISTRY_TOKEN", "dckr-42-of-us")
    order = _pod_order(_order(registry="-u me -p $REGISTRY_TOKEN ghcr.io"), "vast")
    assert order.registry == "-u me -p dckr-42-of-us ghcr.io"
    assert "REGISTRY_TOKEN" not in order.environment, "the cloud needs it, the pod does not"
