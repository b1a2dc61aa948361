"""RunPod's `args`: a shell-style string that is split and run without a shell, or the JSON form
{"entrypoint": […], "cmd": […]}; without arguments the container idles, as official images do.
"""

from __future__ import annotations

import json
import shlex

IDLE = ["sleep", "infinity"]


def parse_args(args: str) -> tuple[list[str], list[str]] | None:
    """Entrypoint and command of the JSON form; None when it is a plain string."""
    if not args.lstrip().startswith("{"):
        return None
    try:
        form = json.loads(args)
    except ValueError:
        return None
    if not isinstance(form, dict) or set(form) - {"entrypoint", "cmd"}:
        return None
    return list(form.get("entrypoint") or []), list(form.get("cmd") or [])


def command_of(args: str) -> list[str]:
    """The words of the main process; ValueError when the quoting is broken."""
    form = parse_args(args)
    return (form[0] + form[1] if form else shlex.split(args)) or IDLE
