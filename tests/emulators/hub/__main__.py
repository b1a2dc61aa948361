"""`python -m tests.emulators.hub --port N [--home DIR]`."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.emulators.hub.server import running


def main() -> None:
    """Serve until SIGTERM or SIGINT; the first line is what HF_ENDPOINT must be."""
    parser = argparse.ArgumentParser(description="a strict local Hugging Face hub")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--home", type=Path, help="folder of the large files")
    given = parser.parse_args()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: end.set())
    with running(given.port, home=given.home) as hub:
        print(hub.url, flush=True)
        end.wait()


if __name__ == "__main__":
    main()
