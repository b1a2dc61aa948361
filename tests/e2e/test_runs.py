"""The main job: a run without a fault, a run with a real loss spike, a run that is cancelled."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from blocks.local import processes
from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import SPIKE, TINY, Side, longer, make_side, needs_axolotl

pytestmark = pytest.mark.e2e


def _plain_axolotl(folder: Path) -> list[float]:
    """The losses of `axolotl train` on the tiny task file, without us."""
    settings = yaml.safe_load((REPOSITORY / TINY).read_text())
    settings |= {
        "output_dir": str(folder / "out"),
        "dataset_prepared_path": str(folder / "prepared"),
    }
    file = folder / "tiny.yml"
    file.write_text(yaml.safe_dump(settings))
    environment = {
        **os.environ,
        "AXOLOTL_DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_USE_CPU": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
    axolotl = axolotl_environment() / "bin" / "axolotl"
    subprocess.run(
        [str(axolotl), "train", str(file), "--launcher", "python"],
        cwd=REPOSITORY,
        env=environment,
        check=True,
        capture_output=True,
        timeout=240,
    )
    last = max((folder / "out").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]


def test_the_loss_curve_is_that_of_plain_axolotl_and_nothing_is_left_running(
    tmp_path: Path, empty_home: Path
) -> None:
    """To the last digit: we change nothing in it. The command takes down what it started."""
    needs_axolotl()
    alone = make_side(empty_home)
    done = alone.cli("run", TINY, "--cloud", "local", "--watch")
    assert done.returncode == 0, done.stdout + done.stderr
    last_line = done.stdout.splitlines()[-1]
    report = json.loads((REPOSITORY / last_line).read_text())

    assert report["state"] == "completed"
    assert [attempt["outcome"] for attempt in report["attempts"]] == ["completed"]
    assert report["final_step"] == report["planned_steps"] == 40
    assert (alone.home.path / report["model_dir"] / "model.safetensors").stat().st_size > 0
    assert [loss for _, loss in alone.steps(report["run"])] == _plain_axolotl(tmp_path)
    assert not list(alone.home.pods.iterdir())
    assert not _processes_that_name(alone.home.path)


def test_a_run_comes_back_from_a_loss_spike(side: Side) -> None:
    """H35: the weights are damaged once; the run resumes before the onset and completes."""
    run = side.start(SPIKE)
    report = side.report(run, within=240)
    assert report["state"] == "completed", report["reason"]
    first, second = report["attempts"]
    assert first["outcome"] == "loss_spike"
    assert second["outcome"] == "completed"
    assert second["from_checkpoint"] < first["onset_step"] <= first["alarm_step"]
    assert report["final_step"] == report["planned_steps"]
    assert all(pod["terminated"] for pod in report["pods"])
    folder = side.home.runs / run
    assert any((folder / "quarantine").iterdir()), "what was saved after the onset is set aside"
    healthy = dict(side.steps(run))
    assert healthy[report["planned_steps"]] < healthy[first["onset_step"] - 1]
    assert {child["state"]["name"] for child in side.children(run)} == {"Completed", "LossSpike"}


@pytest.mark.parametrize("way", ["command line", pytest.param("UI", marks=pytest.mark.chaos)])
def test_a_cancelled_run_saves_gives_its_pod_back_and_reports(
    way: str, side: Side, tmp_path: Path
) -> None:
    """H53: trainer, worker and guard are gone, the listing is empty, the state is Cancelled."""
    run = side.start(longer(tmp_path))
    side.wait_for_step(run, 20)
    pod = json.loads(side.cli("pods", "--json").stdout)[0]["id"]
    assert processes.marked(pod)
    if way == "UI":
        side.post(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": False})
    else:
        assert side.cli("cancel", run).returncode == 0
    report = side.report(run, within=90)
    assert report["state"] == "cancelled"
    assert report["pods"][0]["terminated"]
    assert processes.marked(pod) == []
    assert side.cli("pods", "--json").stdout.strip() == "[]"
    last = side.steps(run)[-1][0]
    assert last < 200, "it was cancelled in the middle"
    assert report["final_step"] == last
    assert (side.home.runs / run / "out" / f"checkpoint-{last}" / "trainer_state.json").exists()


def test_a_cancelled_run_can_be_resumed(side: Side, tmp_path: Path) -> None:
    """The next attempt goes on at the step after the last checkpoint, under the same run."""
    run = side.start(longer(tmp_path))
    side.wait_for_step(run, 20)
    assert side.cli("cancel", run).returncode == 0
    side.report(run, within=90)
    done = side.cli("resume", run)
    assert done.returncode == 0, done.stderr
    side.wait("the end", lambda: side.state(run) == "Completed")
    report = json.loads((side.home.runs / run / "report.json").read_text())
    assert [attempt["outcome"] for attempt in report["attempts"]] == ["cancelled", "completed"]
    assert report["attempts"][1]["first_step"] == report["attempts"][0]["last_step"] + 1
    assert [step for step, _ in side.steps(run)] == list(range(1, 201))


BAD = {
    "syntax": b"base_model: x\n    type: pretrain\n",
    "unknown-key": b"base_model: x\nrunner: {max_pric_per_hour: 1}\n",
    "wrong-type": b"base_model: x\nrunner: {max_hours: soon}\n",
    "empty": b"",
    "not-utf8": b"base_model: \xff\xfe\n",
    "huge": b"# filler\n" * 1_200_000,
}


@pytest.mark.parametrize("kind", [*BAD, "missing", "folder"])
def test_bad_input_is_one_message_exit_code_2_and_ConfigError(
    kind: str, side: Side, tmp_path: Path
) -> None:
    """No pod, no traceback, and the refusal stands in the UI and in a report as well."""
    file = tmp_path / f"{kind}.yml"
    if kind in BAD:
        file.write_bytes(BAD[kind])
    elif kind == "folder":
        file.mkdir()
    done = side.cli("run", str(file))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr + done.stdout
    assert str(file) in done.stderr
    run = done.stderr.split()[-1]
    report = side.report(run, within=60)
    assert side.state(run) == "ConfigError"
    assert report["outcome"] == "config_error"
    assert report["pods"] == []
    assert report["reason"].split(":")[0] == str(file)


def _processes_that_name(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            text = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"AXR_HOME={folder}".encode() in text and int(entry.name) != os.getpid():
            found.append(entry.name)
    return found
