"""What the parent tells the pod that publishes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from runner.attempts import AttemptFacts
from runner.provenance import from_plain
from tasks import provenance as module
from tasks.provenance import provenance
from tasks.run import Run

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
RUN = Run("c0ffee", "configs/x.yml", "abc", BEGAN, repository="me/configs")


def _bill(cloud: str, place: str, hours: float | None) -> str:
    ended = None if hours is None else (BEGAN + timedelta(hours=hours)).isoformat()
    return json.dumps(
        {
            "cloud": cloud,
            "created": BEGAN.isoformat(),
            "terminated": ended,
            "price_per_hour": 2.0,
            "place": place,
        }
    )


def test_attempts_pods_and_cost_are_told_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """As plain JSON of some hundred bytes, whatever the attempts' curves hold."""
    monkeypatch.setenv("HF_TOKEN", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567")
    crash = "401 with hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567 " + "x" * 500
    done = [
        AttemptFacts(1, "crash", crash, first_step=1, last_step=9),
        AttemptFacts(
            2, "completed", "trained", from_checkpoint=5, first_step=6, last_step=40,
            rung={"kind": "replay"}, curve=tuple((step, 1.0) for step in range(300)),
        ),
    ]  # fmt: skip
    known = {
        "pod.a": _bill("vast", "48213", 1.0),
        "pod.b": _bill("runpod", "NVIDIA A40 / SECURE / EU-RO-1", None),
    }
    monkeypatch.setattr(module, "recall", lambda run: known)
    monkeypatch.setattr(module, "attempts", lambda run: done)
    plain = provenance(RUN, BEGAN + timedelta(hours=3))
    text = json.dumps(plain)
    assert "hf_AbC" not in text
    assert len(text) < 2000
    told = from_plain(json.loads(text))
    assert (told.run, told.task_file, told.repository, told.commit) == (
        "c0ffee", "configs/x.yml", "me/configs", "abc",
    )  # fmt: skip
    assert told.cost_usd == 8.0
    assert [(pod.cloud, pod.place, pod.hours, pod.cost_usd) for pod in told.pods] == [
        ("vast", "", 1.0, 2.0),
        ("runpod", "NVIDIA A40 / SECURE / EU-RO-1", 3.0, 6.0),
    ]
    first, second = told.attempts
    assert first.reason.startswith("401 with [secret HF_TOKEN]")
    assert (second.from_checkpoint, second.last_step, second.reason) == (5, 40, "")
    assert second.rung == {"kind": "replay"}
