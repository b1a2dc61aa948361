from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from pod.rundir import RunDir
from pod.saving import NotSaved
from tasks import safety
from tasks.safety import bring_to_safety, is_only_copy


def test_what_a_rented_pod_has_is_brought_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its disk ends with it; on this machine the run's folder stays, and the store has a moment."""
    done: list[str] = []

    def save(folder: RunDir, run: str, environment: Any, *, within: float) -> str:
        if environment.get("fails"):
            raise NotSaved("no token")
        done.append(run)
        return "the model in hf://me/x"

    monkeypatch.setattr(safety, "save_only_copy", save)
    monkeypatch.setattr(safety, "start_mirror", lambda *args: done.append("started"))
    monkeypatch.setattr(safety, "wait_until_stored", lambda *args: done.append("waited"))
    folder = RunDir(tmp_path)
    assert "hf://me/x" in bring_to_safety(folder, "run", {"AXR_CLOUD": "vast"})
    assert str(tmp_path) in bring_to_safety(folder, "run", {"AXR_CLOUD": "local"})
    assert done == ["run", "started", "waited"]
    with pytest.raises(NotSaved, match="no token"):
        bring_to_safety(folder, "run", {"AXR_CLOUD": "vast", "fails": "1"})


def test_the_last_word_about_the_only_copy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that saves it later takes the word back: an empty label."""
    steps = [FlowRun(id=uuid4(), flow_id=uuid4(), name=name) for name in ("train-1", "publish-1")]
    monkeypatch.setattr(safety, "children", lambda run: steps)
    assert is_only_copy("run") is None
    steps[1].labels["axr.only_copy"] = "the hub is away"
    assert is_only_copy("run") == "the hub is away"
    steps[1].labels["axr.only_copy"] = ""
    assert is_only_copy("run") is None
