"""What a pod may leave of its logs: its own run's, a few names, bounded, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from deployments.gateway.app import make_app
from deployments.gateway.logs_door import MOST_PODS
from pod.sending import MOST_BYTES
from runner.tokens import pod_token

KEY = b"k" * 32
NOW = 1_800_000_000.0
RUN, OTHER = str(uuid4()), str(uuid4())


@pytest.fixture
def gateway(tmp_path: Path) -> TestClient:
    """A gateway whose home is a folder of the test."""
    app = make_app("http://127.0.0.1:9/api", KEY, repository=tmp_path,
                   bundles=tmp_path / "bundles", clock=lambda: NOW)  # fmt: skip
    token = pod_token(KEY, RUN, NOW + 60)
    return TestClient(app, headers={"Authorization": f"Bearer {token}"})


def test_a_log_is_kept_in_the_runs_folder_and_replaced(gateway: TestClient, tmp_path: Path) -> None:
    """Secrets that the pod did not know of are taken out here."""
    for text in ("first\n", "HF_TOKEN=hf_" + "a1B2c3D4e5" * 4 + "\n"):
        assert gateway.put(f"/logs/{RUN}/pod-1/worker.log", json={"text": text}).status_code == 200
    kept = (tmp_path / "runs" / RUN / "logs" / "pod-1" / "worker.log").read_text()
    assert kept.startswith("HF_TOKEN=[secret")
    assert "a1B2c3" not in kept


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"/logs/{OTHER}/pod-1/worker.log", {"text": "x"}),
        (f"/logs/{RUN}/pod-1/report.json", {"text": "x"}),
        (f"/logs/{RUN}/pod-1/x/worker.log", {"text": "x"}),
        (f"/logs/{RUN}/.ssh/worker.log", {"text": "x"}),
        (f"/logs/{RUN}/worker.log", {"text": "x"}),
        (f"/logs/{RUN}/%2e%2e/worker.log", {"text": "x"}),
        (f"/logs/{RUN}/pod-1/worker.log", {"text": 1}),
        (f"/logs/{RUN}/pod-1/worker.log", ["x"]),
        (f"/logs/{RUN}/pod-1/worker.log", {"text": "x" * (MOST_BYTES + 1)}),
    ],
)
def test_anything_else_is_refused(
    gateway: TestClient, tmp_path: Path, path: str, body: Any
) -> None:
    assert gateway.put(path, json=body).status_code == 403
    assert not (tmp_path / "runs").exists()


def test_a_token_is_needed(gateway: TestClient) -> None:
    other = {"Authorization": f"Bearer {pod_token(b'x' * 32, RUN, NOW + 60)}"}
    path = f"/logs/{RUN}/pod-1/worker.log"
    assert gateway.put(path, json={"text": "x"}, headers=other).status_code == 401


def test_the_pods_of_a_run_are_counted(gateway: TestClient) -> None:
    """Whoever has a pod's token can't fill the disk of the control side."""
    answers = [
        gateway.put(f"/logs/{RUN}/pod-{n}/worker.log", json={"text": "x"}).status_code
        for n in range(MOST_PODS + 1)
    ]
    assert answers == [200] * MOST_PODS + [403]
    assert gateway.put(f"/logs/{RUN}/pod-0/boot.log", json={"text": "x"}).status_code == 200
