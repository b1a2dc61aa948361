"""git push → event → dispatch → runs: a bare repository with the hook, axolotl on local pods."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.home import REPOSITORY
from tests.e2e.conftest import TINY, Side, make_side
from tests.e2e.pushes import Pushes, connected, stub_environment
from tests.histories import ZERO

pytestmark = pytest.mark.e2e

LIMIT = 4  # pods at once, of the whole installation


@pytest.fixture(scope="module")
def pushes(side: Side, tmp_path_factory: pytest.TempPathFactory) -> Pushes:
    """With a model and a data set in the repository, as a user would have them."""
    made = connected(side, tmp_path_factory.mktemp("pushes"))
    shutil.copytree(REPOSITORY / "configs/examples/tiny", made.work.folder / "configs/tiny")
    return made


def _task(folder: str = "tiny", **changes: Any) -> str:
    """The tiny task file; it names its files as they lie beside it, or from the root."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings["base_model"] = f"{folder}/model"
    settings["datasets"][0]["path"] = f"{folder}/data.jsonl"
    settings |= {"max_steps": 6, "save_steps": 3, "eval_steps": 6, "warmup_steps": 1, **changes}
    return yaml.safe_dump(settings, sort_keys=False)


@pytest.mark.chaos
def test_three_files_in_one_push_are_three_runs_side_by_side(pushes: Pushes) -> None:
    """H54: each trains on the files of the very commit, and pushing again starts nothing."""
    names = ["configs/a.yml", "configs/my run.yml", "configs/día.yml"]
    for seed, name in enumerate(names):
        pushes.work.write(name, _task(seed=seed))
    commit = pushes.push("Three")
    assert pushes.dispatched(1)["state"]["message"] == "3 started"
    runs = {name: found[0] for name, found in pushes.runs().items()}
    assert sorted(runs) == sorted(names)
    reports = {name: pushes.side.report(run["id"], within=420) for name, run in runs.items()}
    for name, report in reports.items():
        assert (report["state"], report["final_step"]) == ("completed", 6), report["reason"]
        assert (report["task"], report["commit"]) == (name, commit)
        trained = yaml.safe_load(
            (pushes.side.home.runs / report["run"] / "axolotl.yml").read_text()
        )
        source = pushes.side.home.runs / report["run"] / "source"
        assert trained["base_model"] == str(source / "configs/tiny/model")
        assert trained["datasets"][0]["path"] == str(source / "configs/tiny/data.jsonl")
    created = max(report["pods"][0]["created"] for report in reports.values())
    ended = min(report["pods"][0]["terminated"] for report in reports.values())
    assert created < ended, "all three had their pods at the same time"

    pushes.work.write("README.md", "x")
    later = pushes.push("Nothing to train")
    assert pushes.dispatched(2)["state"]["message"] == "0 started"
    pushes.send(ZERO, commit)
    assert pushes.dispatched(3)["state"]["message"] == "0 started, 3 were there already"
    pushes.send(ZERO, later, files=[{"path": names[0], "blob": "ab" * 20}])
    assert pushes.dispatched(4)["state"]["message"] == "0 started, 3 were there already"
    assert {name: len(found) for name, found in pushes.runs().items()} == dict.fromkeys(names, 1)


@pytest.mark.chaos
def test_one_bad_file_among_five_is_told_and_not_started(pushes: Pushes) -> None:
    """The others train; the same event twice starts one run each."""
    before = pushes.push("Before")
    pushes.dispatched(len(pushes.dispatches()) + 1)
    done = len(pushes.dispatches())
    for number in range(4):
        text = _task("configs/tiny", seed=10 + number, max_steps=3)
        pushes.work.write(f"configs/five/{number}.yml", text)
    pushes.work.write("configs/five/bad.yml", _task(runner={"cloud": "moon"}))
    commit = pushes.push("Five")
    pushes.send(before, commit)
    pushes.dispatched(done + 2)
    messages = sorted(run["state"]["message"] for run in pushes.dispatches()[done:])
    new = [int(message.partition(" ")[0]) for message in messages]
    assert sum(new) == 4, messages
    assert all(message.endswith("not started: configs/five/bad.yml") for message in messages)
    assert {run["state"]["name"] for run in pushes.dispatches()[done:]} == {"ConfigError"}
    runs = {name: found for name, found in pushes.runs().items() if "/five/" in name}
    assert sorted(runs) == [f"configs/five/{number}.yml" for number in range(4)]
    for (run,) in runs.values():
        report = pushes.side.report(run["id"], within=420)
        assert report["state"] == "completed", report["reason"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"repository": "demo/other"},
        {"repository": "someone/else"},
        {"after": "HEAD"},
        {"files": "x" * 100_000},
        {"ref": None},
    ],
    ids=str,
)
def test_a_forged_or_malformed_event_is_refused_in_the_ui(
    pushes: Pushes, wrong: dict[str, Any]
) -> None:
    """With a clear line, and nothing is started."""
    done, runs = len(pushes.dispatches()), len(pushes.runs())
    payload = {"before": ZERO, "after": "ab" * 20, **wrong}
    pushes.send(payload.pop("before"), payload.pop("after"), **payload)
    refused = pushes.dispatched(done + 1)
    assert refused["state"]["name"] == "Refused"
    assert len(refused["state"]["message"]) < 500
    assert len(pushes.runs()) == runs


@pytest.fixture
def stubbed(empty_home: Path, tmp_path: Path) -> Iterator[Pushes]:
    """A control side of its own, whose pods have an axolotl that trains nothing."""
    side = make_side(empty_home)
    side.environment["AXR_AXOLOTL_ENV"] = str(stub_environment(tmp_path / "stub"))
    up = side.cli("up")
    assert up.returncode == 0, up.stderr
    try:
        yield connected(side, tmp_path)
    finally:
        side.cli("down")


STUBBED = """\
base_model: x
datasets: [{path: owner/rows, type: alpaca}]
learning_rate: 1e-4
max_steps: 40
runner: {env: {HF_HUB_OFFLINE: "1"}}
"""


@pytest.mark.chaos
@pytest.mark.parametrize("wanted", [6, 50])
def test_fifty_files_in_one_push(stubbed: Pushes, wanted: int) -> None:
    """Fifty runs within a minute, never more pods than the limit, and each of them accounted for.

    Of one of them the first six are waited for and the rest is cancelled.
    """
    for number in range(50):
        stubbed.work.write(f"configs/{number}.yml", f"{STUBBED}seed: {number}\n")
    began = time.monotonic()
    stubbed.push("Fifty")
    stubbed.side.wait("fifty runs", lambda: len(stubbed.runs()) == 50, within=60)
    print(f"fifty runs after {time.monotonic() - began:.1f} s")
    most = 0
    deadline = time.monotonic() + 40 * wanted
    while True:
        pods = list(stubbed.side.home.pods.glob("*/pod.json"))
        most = max(most, len(pods))
        assert most <= LIMIT, pods
        runs = [found[0] for found in stubbed.runs().values()]
        ended = [run for run in runs if run["state_type"] == "COMPLETED"]
        assert not [run for run in runs if run["state_type"] in ("FAILED", "CRASHED")]
        if len(ended) >= wanted:
            break
        assert time.monotonic() < deadline, stubbed.side.last_words()
        time.sleep(0.5)
    assert most > 1, "they run side by side"
    for run in runs:
        if run["state_type"] == "SCHEDULED":
            state = {"type": "CANCELLED"}
            stubbed.side.post(f"flow_runs/{run['id']}/set_state", {"state": state, "force": True})
    final = ("COMPLETED", "CANCELLED")
    stubbed.side.wait(
        "all of them ended",
        lambda: all(found[0]["state_type"] in final for found in stubbed.runs().values()),
    )
    accounted = stubbed.runs()
    assert sum(len(found) for found in accounted.values()) == 50
    for name, (run,) in accounted.items():
        if run["state_type"] == "COMPLETED":
            report = json.loads((stubbed.side.home.runs / run["id"] / "report.json").read_text())
            assert (report["task"], report["state"]) == (name, "completed")
    assert not list(stubbed.side.home.pods.glob("*/pod.json"))
