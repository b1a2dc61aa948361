"""The step of the prepare flow that fetches, with the real processes and the hub's emulator."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pod import events
from pod.fetch.fetching import Standing
from pod.rundir import RunDir
from runner.errors import ConfigError, TrainingFailed, outcome_of, state_name
from runner.taskfile import TaskFile, parse_task_file
from tasks import fetching
from tasks.fetching import Shown, fetch_inputs, hub_environment, line, write_adapted
from tests.emulators.hub import Emulator, running

TEXT = """base_model: me/model
sequence_len: 512
datasets:
  - path: me/rows
    type: alpaca
"""


@pytest.fixture
def hub() -> Iterator[Emulator]:
    with running() as emulator:
        emulator.plant("me/model", {"config.json": "{}", "model.safetensors": 700_000})
        emulator.plant("me/rows", {"README.md": "", "a.jsonl": "{}\n"}, kind="dataset")
        yield emulator


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the artifact showed."""
    seen: list[str] = []
    monkeypatch.setattr(
        fetching,
        "create_progress_artifact",
        lambda done, key, description: seen.append(description),
    )
    monkeypatch.setattr(
        fetching, "update_progress_artifact", lambda it, done, description: seen.append(description)
    )
    return seen


class Pod:
    """A pod with a volume; each run has a folder on it."""

    def __init__(self, hub: Emulator, volume: Path) -> None:
        code = volume.parent / "code"
        code.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(volume),
            "HF_ENDPOINT": hub.url,
            "AXR_VOLUME": str(volume),
            "AXR_REPOSITORY": str(code),
            "AXR_AXOLOTL_ENV": str(volume / "none"),
        }
        self.volume = volume

    def prepare(
        self, run: str, text: str = TEXT, commits: dict[str, str] | None = None
    ) -> tuple[RunDir, dict[str, str]]:
        folder, task = RunDir(self.volume / run), parse_task_file(text, "run.yml")
        folder.path.mkdir(parents=True, exist_ok=True)
        write_adapted(folder, task, self.environment)
        return folder, self.fetch(folder, task, commits)

    def fetch(
        self, folder: RunDir, task: TaskFile, commits: dict[str, str] | None = None
    ) -> dict[str, str]:
        return fetch_inputs.fn(folder, folder.path.name, task, commits, self.environment)


@pytest.fixture
def pod(hub: Emulator, tmp_path: Path) -> Pod:
    return Pod(hub, tmp_path / "volume")


def axolotl(folder: RunDir) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(folder.axolotl_file.read_text())
    return found


def contents(hub: Emulator) -> int:
    return sum("/storage/" in r["path"] for r in hub.state["requests"])


def test_the_trainer_is_told_of_the_very_commits(hub: Emulator, pod: Pod, shown: list[str]) -> None:
    """And where they lie; the record names the way, and the progress was shown and written."""
    folder, commits = pod.prepare("run-1")
    model, rows = (hub.repository("me/model"), hub.repository("me/rows", "dataset"))
    assert commits == {"model:me/model@": model.head.sha, "dataset:me/rows@": rows.head.sha}
    assert axolotl(folder)["revision_of_model"] == model.head.sha
    assert axolotl(folder)["datasets"][0]["revision"] == rows.head.sha
    record = json.loads(folder.fetched.read_text())
    assert [(r["repo"], r["files"], r["way"]) for r in record["repos"]] == [
        ("me/model", 2, "ranges"),
        ("me/rows", 2, "ranges"),
    ]
    cache = str(pod.volume / "cache" / "hub")
    # `datasets` asks the hub for a data set of it, however much of that is here.
    assert hub_environment(folder, pod.environment) == {"HF_HUB_CACHE": cache}
    assert shown[-1].startswith("fetching: 0.7 of 0.7 MB")
    told = [event for event in events.read(folder.events)[0] if event["kind"] == "fetch"]
    assert {"bytes", "total", "bytes_per_second", "way", "file"} <= set(told[0])


def test_the_next_run_of_the_volume_fetches_nothing(hub: Emulator, pod: Pod) -> None:
    """It uses the same tokenised data; other settings or another model have their own (H40)."""
    first, _ = pod.prepare("run-1")
    before = contents(hub)
    second, _ = pod.prepare("run-2")
    assert contents(hub) == before
    place = axolotl(first)["dataset_prepared_path"]
    assert place == axolotl(second)["dataset_prepared_path"]
    assert Path(place).parent == pod.volume / "cache" / "prepared"
    hub.plant("me/other", {"config.json": "{}", "model.safetensors": 600_000})
    for text in (TEXT.replace("512", "256"), TEXT.replace("me/model", "me/other")):
        other, _ = pod.prepare("run-3", text)
        assert axolotl(other)["dataset_prepared_path"] not in (place, str(first.path / "prepared"))


def test_an_edited_local_file_is_tokenised_again(pod: Pod) -> None:
    """Under the same name, with the same settings (H40)."""
    rows = pod.volume.parent / "code" / "rows.jsonl"
    rows.write_text('{"a": 1}')
    text = TEXT.replace("me/rows", "rows.jsonl")
    first, _ = pod.prepare("run-1", text)
    same, _ = pod.prepare("run-2", text)
    rows.write_text('{"a": 2}')
    edited, _ = pod.prepare("run-3", text)
    places = [axolotl(folder)["dataset_prepared_path"] for folder in (first, same, edited)]
    assert places[0] == places[1] != places[2]
    # All that it reads is here: it does not ask the hub for anything.
    assert hub_environment(first, pod.environment)["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in hub_environment(first, {"HF_HUB_OFFLINE": "0"})


def test_a_branch_that_moved_is_not_followed_within_a_run(hub: Emulator, pod: Pod) -> None:
    """Neither by the next attempt here, nor on another pod, which is told the commits."""
    folder, commits = pod.prepare("run-1")
    task = parse_task_file(TEXT, "run.yml")
    hub.plant("me/model", {"config.json": '{"new": 1}'})
    assert pod.fetch(folder, task) == commits
    _, elsewhere = pod.prepare("run-2", commits=commits)
    assert elsewhere == commits
    _, fresh = pod.prepare("run-3")
    assert fresh != commits
    write_adapted(folder, task, pod.environment, {"micro_batch_size": 1})
    assert axolotl(folder)["revision_of_model"] == commits["model:me/model@"]
    assert axolotl(folder)["micro_batch_size"] == 1
    assert "/cache/prepared/" in axolotl(folder)["dataset_prepared_path"]


def test_a_pod_without_a_hub_does_nothing(hub: Emulator, pod: Pod) -> None:
    """HF_HUB_OFFLINE, or nothing but local names: nobody is asked, and no process starts."""
    pod.environment["HF_HUB_OFFLINE"] = "1"
    folder, commits = pod.prepare("run-1")
    assert commits == {}
    assert hub_environment(folder, pod.environment) == {}
    assert axolotl(folder)["dataset_prepared_path"] == str(folder.path / "prepared")
    assert hub.state["requests"] == []


def test_what_the_hub_refuses_ends_the_run_as_a_config_error(hub: Emulator, pod: Pod) -> None:
    """The parent reads the outcome from the state's name; a hub that is broken is a crash."""
    hub.plant("other/gated", {"config.json": "{}"})
    hub.repository("other/gated").gated = "auto"
    with pytest.raises(ConfigError, match=r"base_model: other/gated is gated .*ask for access"):
        pod.prepare("run-1", TEXT.replace("me/model", "other/gated"))
    assert outcome_of(state_name("config_error")) == "config_error"
    hub.set([{"match": "/storage", "times": 999, "corrupt": 0}])
    with pytest.raises(TrainingFailed, match=r"me/model can't be fetched: model\.safetensors"):
        pod.prepare("run-2")
    assert outcome_of("Crashed") == outcome_of(None) == outcome_of("Completed") == "crash"


def test_progress_is_shown_now_and_then(tmp_path: Path, shown: list[str]) -> None:
    """With what is left to wait for; the last one always."""
    clock = [0.0]
    show = Shown(RunDir(tmp_path), "run", clock=lambda: clock[0])
    for second in range(61):
        clock[0] = second
        show(Standing(second * 10**9, 60 * 10**9, 1e9, "ranges", "a"))
    assert 30 <= len(shown) <= 32
    assert shown[1] == "fetching: 2.0 of 60.0 GB · 1000.0 MB/s · 0:58 left"
    assert shown[-1] == "fetching: 60.0 of 60.0 GB · 1000.0 MB/s"
    assert len(events.read(RunDir(tmp_path).events)[0]) == 3
    assert line(Standing(0, 5_000_000, 0.0, "xet")) == "fetching: 0.0 of 5.0 MB"
