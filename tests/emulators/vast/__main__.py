"""`python -m tests.emulators.vast --port N [--home DIR] [--key KEY] [--spec DIR]`."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.emulators.vast.emulator import KEY, Emulator


def main() -> None:
    """Serve until SIGTERM or SIGINT, which end all instances; the first line is the address."""
    parser = argparse.ArgumentParser(description="a strict local Vast.ai")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--home", type=Path, help="folder of instances and logs")
    parser.add_argument("--key", default=KEY, help="the account's API key")
    parser.add_argument("--spec", type=Path, help="folder of OpenAPI files to hold calls against")
    given = parser.parse_args()
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's background
            signal.signal(number, lambda *_: end.set())
    with Emulator(given.port, home=given.home, key=given.key, spec=given.spec) as emulator:
        print(emulator.url, flush=True)
        if not emulator.contract.on:
            print("no specifications found: calls are not validated", flush=True)
        end.wait()


if __name__ == "__main__":
    main()
