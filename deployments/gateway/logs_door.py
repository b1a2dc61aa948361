"""What pods leave of their logs: PUT /logs/<run>/<pod>/<name> with {"text": …}.

A log replaces the one of its name. It is at most as long as pods send it, of a few names, and of a
few pods for each run, so whoever has a pod's token can fill no disk. Secrets are taken out again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from deployments.gateway.rules import Refused
from pod.rundir import replace_text
from pod.sending import MOST_BYTES, OF_POD, OF_RUN
from runner.secrets import scrub
from runner.tokens import Token

MOST_PODS = 64
_POD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def keep_log(runs: Path, token: Token, path: str, body: Any) -> Refused | None:
    """Keep a log in `<runs>/<run>/logs/<pod>/`; `path` is what follows /logs/ and is_plain."""
    run, pod, name = (*path.split("/"), "", "", "")[:3]
    if token.kind != "pod" or run != token.run or path.count("/") != 2:
        return Refused("not this run's logs")
    if name not in (*OF_POD, *OF_RUN) or not _POD.fullmatch(pod):
        return Refused("no log of a pod")
    text = body.get("text") if isinstance(body, dict) else None
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        return Refused(f'the body must be {{"text": …}} of at most {MOST_BYTES} characters')
    folder = runs / run / "logs"
    known = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    if pod not in known and len(known) >= MOST_PODS:
        return Refused(f"logs of {MOST_PODS} pods are kept already")
    replace_text(folder / pod / name, scrub(text.encode("utf-8", "replace").decode()))
    return None
