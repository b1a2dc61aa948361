"""What Vast says of an instance, as a phase and telemetry."""

from __future__ import annotations

from datetime import UTC, datetime

from blocks.cloud import INSTALLATION, PodPhase, PodStatus
from blocks.vast.refusals import Json

# A stop of our own is written into the label.
STOPPED_MARK = "stopped"
# `actual_status`; null is "no machine yet". The last four never become running by themselves.
PHASES = {
    None: PodPhase.QUEUED,
    "created": PodPhase.STARTING,
    "loading": PodPhase.STARTING,
    "restarting": PodPhase.STARTING,
    "rebooting": PodPhase.STARTING,
    "running": PodPhase.RUNNING,
    "stopped": PodPhase.STOPPED,
    "exited": PodPhase.BROKEN,
    "unknown": PodPhase.BROKEN,
    "offline": PodPhase.BROKEN,
    "frozen": PodPhase.BROKEN,
}
BAD_WORDS = ("oci runtime", "error")


def phase_of(found: Json) -> PodPhase:
    """Where the instance is in its life."""
    states = [found.get(name) for name in ("cur_state", "intended_status", "next_state")]
    if states == ["stopped"] * 3:
        stopped_by_us = str(found.get("label") or "").endswith(f" {STOPPED_MARK}")
        is_outbid = found.get("is_bid") and not stopped_by_us
        return PodPhase.OUTBID if is_outbid else PodPhase.STOPPED
    if states[0] == "stopped":
        return PodPhase.QUEUED  # told to start, and waits for its GPUs
    actual = found.get("actual_status")
    phase = PHASES.get(actual, PodPhase.BROKEN)
    said = str(found.get("status_msg") or "").lower()
    if phase is PodPhase.STARTING and any(word in said for word in BAD_WORDS):
        return PodPhase.BROKEN
    return phase


def status_of(found: Json) -> PodStatus:
    """Phase and telemetry. Memory is given as a share alone: Vast's units are not sure."""
    used, limit = found.get("mem_usage"), found.get("mem_limit")
    phase = phase_of(found)
    is_running = phase is PodPhase.RUNNING
    return PodStatus(
        phase=phase,
        uptime=found["uptime_mins"] * 60.0 if found.get("uptime_mins") else None,
        cpu_percent=found.get("cpu_util") if is_running else None,
        gpu_percent=found.get("gpu_util") if is_running else None,
        ram_percent=100.0 * used / limit if used is not None and limit else None,
    )


def created(found: Json) -> datetime | None:
    """When it was made, if Vast says so."""
    seconds = found.get("start_date")
    return datetime.fromtimestamp(float(seconds), UTC) if seconds else None


def installation(found: Json) -> str:
    """Which installation rented it, from its variables (pairs to Vast); empty if unknown."""
    pairs = [pair for pair in found.get("extra_env") or [] if len(pair) == 2]
    return next((str(value) for name, value in pairs if name == INSTALLATION), "")


def storage_price(found: Json) -> float | None:
    """USD per hour for its disk alone, which is all that it costs until its container runs."""
    total, gpus = found.get("dph_total"), found.get("dph_base")
    if total is None or gpus is None:
        return None
    return round(max(0.0, float(total) - float(gpus)), 6)


def price_now(found: Json) -> float:
    """USD per hour that an instance costs at present; a stopped one costs its disk."""
    if found.get("cur_state") == "stopped":
        return storage_price(found) or 0.0
    return float(found.get("dph_total") or 0.0)
