"""Tell the control side what only this pod knows, in the log and the labels of the run's newest
step: the page that people look at, and what the sweep reads. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from pod.asking import ask

TIMEOUT = 10.0
CRITICAL = 50
LONGEST = 1000  # characters


def tell(environment: Mapping[str, str], label: str, text: str) -> bool:
    """Leave `text` as a critical log line and as this label; an empty text clears the label.

    False when the control side did not take it: whoever tells goes on all the same.
    """
    api, key = environment.get("PREFECT_API_URL", "").rstrip("/"), environment.get("AXR_TOKEN", "")
    step = _newest_step(api, key, environment.get("AXR_RUN", "")) if api else None
    if step is None:
        return False
    labels = {label: text[:LONGEST]}
    noted = ask("PATCH", f"{api}/flow_runs/{step}/labels", key, labels, timeout=TIMEOUT)
    if text:
        line = {
            "name": "guard",
            "level": CRITICAL,
            "message": text[:LONGEST],
            "timestamp": datetime.now(UTC).isoformat(),
            "flow_run_id": step,
        }
        ask("POST", f"{api}/logs/", key, [line], timeout=TIMEOUT)
    return noted.status in (200, 204)


def _newest_step(api: str, key: str, run: str) -> str | None:
    """The flow run on this pod that started last."""
    question = {
        "flow_runs": {"tags": {"all_": [f"run:{run}"]}},
        "sort": "START_TIME_DESC",
        "limit": 20,
    }
    found = ask("POST", f"{api}/flow_runs/filter", key, question, timeout=TIMEOUT).body
    steps = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return next(
        (str(each["id"]) for each in steps if each.get("work_queue_name") == f"axr-{run}"), None
    )
