from datetime import UTC, datetime
from pathlib import Path

import pytest

from runner.taskfile import parse_task_file
from tasks import ordering
from tasks.ordering import pod_environment
from tasks.run import Order, Run

RUN = Run("c0ffee00-0000-4000-8000-000000000001", "x.yml", None, datetime(2026, 1, 1, tzinfo=UTC))
GUARD = ("AXR_LEASE", "AXR_KEEP", "AXR_STOP_AFTER", "AXR_TERMINATE_AFTER")


def _for_guard(cloud: str, settings: str) -> dict[str, str]:
    """What the guard is told."""
    task = parse_task_file(f"base_model: x\nrunner: {settings}\n", "x.yml")
    found = pod_environment(RUN, Order(task, (cloud,)), cloud)
    return {name: found[name] for name in GUARD if name in found}


@pytest.mark.parametrize("cloud", ["local", "runpod", "vast"])
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("{}", {}),
        ("{stop_after: -1, terminate_after: -1}", {}),
        (
            "{stop_after: 900, terminate_after: 1800}",
            {"AXR_STOP_AFTER": "900", "AXR_TERMINATE_AFTER": "1800"},
        ),
        ("{one_shot: false}", {"AXR_KEEP": "yes"}),
        ("{env: {AXR_LEASE: '1', AXR_KEEP: 'yes'}}", None),
    ],
)
def test_a_pod_is_told_when_to_end_itself(
    cloud: str,
    settings: str,
    told: dict[str, str] | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """H16: seconds from its creation, on each cloud; -1 is never. The lease is ours to set."""
    monkeypatch.setenv("AXR_HOME", str(tmp_path))
    monkeypatch.setattr(ordering, "gateway_url", lambda cloud: "https://gateway")
    monkeypatch.setattr(ordering, "installation_id", lambda: "us")
    found = _for_guard(cloud, settings)
    assert found["AXR_LEASE"] == "900"
    if told is not None:
        assert found == {"AXR_LEASE": "900", **told}
