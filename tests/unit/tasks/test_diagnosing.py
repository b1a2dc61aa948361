"""Why a run ended, by its last attempt or by the logs of its pods."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from blocks.cloud import Pod
from runner.attempts import AttemptFacts
from runner.diagnosis import diagnose
from runner.errors import TryAgain
from tasks import pod_logs
from tasks.diagnosing import diagnosis_of, why_not_started
from tasks.pod_logs import keep_logs, logs_of

RUN = "run-1"
POD = Pod("pod-1", f"axr-{RUN}", "vast", datetime(2026, 1, 1, tzinfo=UTC), 1.0)
SECRET = "hf_" + "a1B2c3D4e5" * 4


class Cloud:
    """A cloud with one pod, that has said this."""

    def __init__(self, said: str | Exception) -> None:
        self.said = said

    def find(self, run: str) -> Pod:
        """It is there."""
        return POD

    def log(self, pod: Pod) -> str:
        """What it said."""
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXR_HOME", str(tmp_path))


def says(monkeypatch: pytest.MonkeyPatch, said: str | Exception) -> None:
    """What the cloud answers."""
    monkeypatch.setattr(pod_logs, "cloud_of", lambda pod: Cloud(said))
    monkeypatch.setattr(pod_logs, "cloud", lambda name: Cloud(said))


def keep(name: str, text: str) -> None:
    """A log that the pod has sent."""
    path = logs_of(RUN) / POD.id / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_pod_without_a_worker_is_told_by_what_its_cloud_has_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """H23, H56: with a wrong address a pod can't send its own; secrets are taken out."""
    says(monkeypatch, f"token {SECRET}\nRuntimeError: Failed to reach API at https://x/api/\n")
    found = why_not_started(POD, "still booting after 35 minutes")
    assert found.kind == "no way to the gateway"
    assert found.lines[-1].startswith("RuntimeError: Failed to reach API")
    kept = (logs_of(RUN) / POD.id / "cloud.log").read_text()
    assert "Failed to reach API" in kept
    assert SECRET not in kept


def test_what_the_pod_has_sent_counts_after_what_its_cloud_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that dies at once can't speak, but boot.sh sends its log."""
    says(monkeypatch, "start container\n")
    keep("worker.log", "ModuleNotFoundError: No module named 'prefect'\n")
    found = why_not_started(POD, "still booting")
    assert (found.kind, found.final) == ("dependency", True)


@pytest.mark.parametrize("said", ["", TryAgain("429")])
def test_a_cloud_that_says_nothing_keeps_nothing_from_going_on(
    monkeypatch: pytest.MonkeyPatch, said: str | Exception
) -> None:
    """The pod is given back all the same, and the reason is the whole story."""
    says(monkeypatch, said)
    found = why_not_started(POD, "still booting")
    assert (found.kind, found.lines, found.final) == ("pod did not start", (), False)
    assert not logs_of(RUN).exists()


def test_the_logs_of_living_pods_alone_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were given back have left theirs before."""
    says(monkeypatch, "said\n")
    gone = '{"cloud": "vast", "terminated": "2026-01-01T00:00:00Z"}'
    keep_logs(RUN, {"pod.p": gone})
    assert not logs_of(RUN).exists()
    keep_logs(RUN, {"pod.pod-1": '{"cloud": "vast", "terminated": null}'})
    assert (logs_of(RUN) / POD.id / "cloud.log").read_text() == "said\n"


def test_the_last_attempt_says_best_why_it_failed() -> None:
    why = diagnose("crash", "x", "ImportError: no")
    facts = AttemptFacts(1, "crash", "x", diagnosis=why)
    assert diagnosis_of(RUN, "crash", "x; no progress", [facts]) is why
    assert diagnosis_of(RUN, "completed", "", [facts]) is None


def test_an_entry_script_is_told_by_its_own_log() -> None:
    """Of the pod that had it, rented or local."""
    keep("entry.log", "ERROR: No matching distribution found for nothing==9\n")
    found = diagnosis_of(RUN, "crash", "`entry` ended with code 1: see log", [])
    assert found is not None
    assert found.kind == "dependency"
    assert found.lines == ("ERROR: No matching distribution found for nothing==9",)


def test_a_step_that_no_worker_took_is_told_by_the_boot_log() -> None:
    """H56."""
    keep("worker.log", "RuntimeError: Failed to reach API at https://control.example/api/\n")
    found = diagnosis_of(RUN, "crash", "no worker on the pod took prepare-1 within 600 s", [])
    assert found is not None
    assert found.kind == "no way to the gateway"
