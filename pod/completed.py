"""Whether the training in a run's folder has reached its end with healthy weights, by evidence."""

from __future__ import annotations

from pathlib import Path

from pod import events, verdict
from pod.integrity import weight_files
from pod.rundir import RunDir

TAIL_BYTES = 64 * 1024


def why_not_complete(run_dir: RunDir) -> str | None:
    """Why the newest attempt's weights are not those of a completed training; None when they
    are.
    """
    every, _ = events.read(run_dir.events)
    attempt = max((event["attempt"] for event in every), default=0)
    if not run_dir.out.is_dir() or not weight_files(run_dir.out):
        return "there are no whole weights of a finished training"
    judged = verdict.judge(
        [event for event in every if event["attempt"] == attempt],
        attempt=attempt,
        alive=False,
        exit_code=None,
        log_tail=_tail(run_dir.trainer_log),
        out=run_dir.out,
    )
    assert judged is not None, "a trainer that is not alive always gets a verdict"
    return None if judged.outcome == "completed" else f"{judged.outcome}: {judged.reason}"


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
