"""What the real huggingface_hub and an emulated hub say of a task file before it is run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from blocks.hub import Hub
from runner.checks.gathering import Checks, check_tasks
from runner.checks.ground import Ground
from runner.checks.grounds import run_environment
from runner.taskfile import parse_task_file
from tests.emulators.hub import Emulator, running
from tests.emulators.hub.testing import use_here

TASK = """\
base_model: me/base
datasets:
  - path: owner/rows
    type: alpaca
learning_rate: 2e-4
save_steps: 10
"""  # 6 lines
RENTED = "hub_model_id: {}\nrunner:\n  cloud: runpod\n  gpu: NVIDIA A40\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """With a model and a data set."""
    monkeypatch.setenv("AXR_GATEWAY_URL", "https://runner.example.com")
    with running() as emulator:
        use_here(monkeypatch)
        emulator.plant("me/base", {"config.json": "{}"})
        emulator.plant("owner/rows", {"rows.jsonl": "{}"}, "dataset")
        yield emulator


def _check(hub: Emulator | str, text: str, token: str = "", *, prove: bool = False) -> Checks:
    url = hub if isinstance(hub, str) else hub.url
    task = parse_task_file(text, "t.yml")
    variables = run_environment(task.settings, {"HF_ENDPOINT": url, "HF_TOKEN": token})
    ground = Ground(tuple(task.settings.cloud), environment=variables)
    (found,) = check_tasks(
        [(task, ground)], hub=lambda ground: Hub(url, token or None), prove=prove
    )
    return found


def _told(found: Checks) -> list[tuple[str, str, int]]:
    return [(each.level, each.code, each.line) for each in found.findings]


@pytest.mark.parametrize("token", ["", "hf_read", "hf_write"])
def test_nothing_is_said_of_what_is_there(hub: Emulator, token: str) -> None:
    """And each thing is asked for once."""
    twice = TASK + "tokenizer_config: me/base\n"
    assert _check(hub, twice, token) == Checks(())
    asked = [each["path"] for each in hub.state["requests"]]
    assert asked == ["/api/models/me/base/auth-check", "/api/datasets/owner/rows/auth-check"]


@pytest.mark.parametrize("token", ["", "hf_read"])
@pytest.mark.parametrize(
    ("line", "code", "at"),
    [
        ("base_model: me/bass", "no-model", 1),
        ("datasets: [{path: owner/row}]", "no-dataset", 2),
        ("test_datasets: [{path: owner/nothing}]", "no-dataset", 7),
        ("lora_model_dir: me/adapter", "no-model", 7),
    ],
)
def test_what_does_not_exist_stops_the_run(
    hub: Emulator, token: str, line: str, code: str, at: int
) -> None:
    """With and without a token, for which the hub answers otherwise."""
    lines = TASK.splitlines()
    if line.startswith("base_model"):
        lines[0] = line
    elif line.startswith("datasets"):
        lines[1:4] = [line]
    else:
        lines.append(line)
    found = _check(hub, "\n".join(lines), token)
    assert _told(found) == [("stop", code, at)]
    assert ("HF_TOKEN" in found.findings[0].hint) == (not token)


@pytest.mark.parametrize(("token", "stopped"), [("", True), ("hf_read", True), ("hf_other", False)])
def test_a_gate_is_told_from_an_absence(hub: Emulator, token: str, stopped: bool) -> None:
    """A token with access goes through it."""
    gated = hub.repository("owner/rows", "dataset")
    gated.gated, gated.granted = "manual", ("other",)
    found = _check(hub, TASK, token)
    assert _told(found) == ([("stop", "gated-dataset", 3)] if stopped else [])
    if stopped:
        assert "gated" in found.findings[0].message


@pytest.mark.parametrize(
    ("token", "repository", "why"),
    [
        ("hf_write", "me/new", ""),
        ("hf_write", "team/new", ""),
        ("hf_write", "new", ""),
        ("hf_fine", "team/new", ""),
        ("hf_read", "me/new", "may only read"),
        ("hf_other", "me/new", "one of other, who can't write to me"),
        ("hf_fine", "me/new", "fine-grained token in HF_TOKEN may not write to me"),
        ("hf_wrong", "me/new", "refuses the token"),
    ],
)
def test_a_token_must_be_able_to_write_where_the_model_goes(
    hub: Emulator, token: str, repository: str, why: str
) -> None:
    """H47: told before nine hours of training; nothing is made by looking."""
    found = _check(hub, TASK.replace("me/base", "./x") + RENTED.format(repository), token)
    told = [each for each in found.findings if each.key == "hub_model_id"]
    assert [(each.level, each.line) for each in told] == ([("stop", 7)] if why else [])
    assert all(why in each.message for each in told)
    assert repository not in hub.state["repos"]


def test_a_run_proves_that_it_can_write(hub: Emulator) -> None:
    """H47: it makes the private repository, again where it is there; a refusal stops it."""
    text = TASK + RENTED.format("me/new")
    for _ in range(2):
        assert _check(hub, text, "hf_write", prove=True) == Checks(())
        assert hub.state["repos"]["me/new"]["private"]
    refusals = {"status": 403, "message": "no storage left", "times": 9}
    hub.set([{"match": "repos/create|auth-check/write", **refusals}])
    found = _check(hub, text, "hf_write", prove=True)
    assert _told(found) == [("stop", "hub-write", 7)]
    assert "no storage left" in found.findings[0].message


def test_a_local_run_makes_no_repository(hub: Emulator) -> None:
    """Its model is not lost with the machine."""
    assert _check(hub, TASK + "hub_model_id: me/new\n", "hf_write", prove=True) == Checks(())
    assert "me/new" not in hub.state["repos"]


def test_a_checkpoint_store_is_written_to_as_well(hub: Emulator) -> None:
    """H47: hf:// with a token that may only read."""
    text = f"{TASK}runner:\n  checkpoint_store: hf://me/ckpt/below\n"
    found = _check(hub, text, "hf_read")
    assert _told(found) == [("stop", "hub-write", 8)]
    assert "me/ckpt" in found.findings[0].hint


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_hub_in_trouble_stops_no_run(hub: Emulator, status: int) -> None:
    """It is a note, and it is asked no more."""
    hub.set([{"status": status, "times": 9}])
    found = _check(hub, TASK + "hub_model_id: me/new\n", "hf_write")
    assert found.verdict == "ok"
    assert found.notes == (f"the hub could not be asked: {hub.url} answers {status}",)
    assert len(hub.state["requests"]) == 1


def test_a_hub_that_is_not_there_stops_no_run(hub: Emulator) -> None:
    """No network, no answer: a note in no time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    found = _check(nobody, TASK, "hf_write")
    assert found.verdict == "ok"
    assert found.notes[0].startswith(f"the hub could not be asked: {nobody}: ")


def test_a_run_that_fetches_nothing_asks_nothing(hub: Emulator, tmp_path: Path) -> None:
    """HF_HUB_OFFLINE of the run, files, and rows that axolotl makes itself."""
    offline = TASK + 'runner: {env: {HF_HUB_OFFLINE: "1"}}\n'
    made = TASK.replace(
        "path: owner/rows\n    type: alpaca", "path: synthetic\n    type: _synthetic"
    )
    assert _check(hub, offline).findings == ()
    assert _check(hub, made.replace("me/base", "./model")).notes == ()
    assert hub.state["requests"] == []
