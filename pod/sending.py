"""Send the ends of this pod's logs to the control side, which keeps them when the pod is gone.

    boot.log     what kept the pod's Python from being made (pod/boot.sh)
    guard.log    what the guard said
    worker.log   the Prefect worker, and what its flows print
    trainer.log, entry.log, mirror.log of the run's folder

A rented pod puts each to <gateway>/logs/<run>/<pod>/<name>; a local one has the run's folder on its
volume and writes it there. Bounded (the last 256 kB each), without secrets, and never in the way:
whoever sends goes on when it fails. Standard library only, for a pod whose worker never came.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from pod.asking import ask
from pod.rundir import replace_text
from runner.secrets import scrub

MOST_BYTES = 256 * 1024
TIMEOUT = 5.0  # seconds for each log: a cancelled flow has 30 in all
OF_POD = ("boot.log", "guard.log", "worker.log")
OF_RUN = ("trainer.log", "entry.log", "mirror.log")


def logs_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where boot.sh lets the pod's own logs be written; on the pod's disk, not the volume."""
    return Path(environment.get("HOME", "/root")) / "axr-logs"


def send_logs(environment: Mapping[str, str] = os.environ) -> str | None:
    """Send every log that there is; why the first one did not go, None when all went."""
    run, pod = environment["AXR_RUN"], environment["AXR_POD"]
    volume = Path(environment["AXR_VOLUME"])
    gateway = environment.get("AXR_GATEWAY", "").rstrip("/")
    for path in _logs(logs_folder(environment), volume / run, rented=bool(gateway)):
        text = scrub(end_of(path), environment)
        if not gateway:
            replace_text(volume / run / "logs" / pod / path.name, text)
            continue
        url = f"{gateway}/logs/{run}/{pod}/{path.name}"
        key = environment.get("AXR_TOKEN", "")
        answer = ask("PUT", url, key, {"text": text}, timeout=TIMEOUT)
        if answer.status != 200:
            return f"{path.name} is not kept: {answer.status}"
    return None


def end_of(path: Path, most: int = MOST_BYTES) -> str:
    """The last `most` bytes of a log, from the beginning of a line; empty without the file."""
    try:
        with path.open("rb") as file:
            cut = max(0, path.stat().st_size - most)
            file.seek(cut)
            content = file.read(most)
    except FileNotFoundError:
        return ""
    # Half a line may hold half a secret, which nothing recognises.
    whole = content.partition(b"\n")[2] if cut and b"\n" in content else content
    return whole.decode(errors="replace")


def note(environment: Mapping[str, str], name: str, line: str) -> None:
    """Append a line to a log of the pod's own, where boot.sh has made their folder."""
    with contextlib.suppress(OSError), (logs_folder(environment) / name).open("a") as file:
        file.write(f"{line}\n")


def _logs(own: Path, run: Path, *, rented: bool) -> Iterator[Path]:
    candidates = [own / name for name in OF_POD]
    candidates += [run / name for name in OF_RUN] if rented else []
    yield from (path for path in candidates if path.is_file() and path.stat().st_size)


if __name__ == "__main__":
    if why := send_logs():
        print(f"sending: {why}", flush=True)
