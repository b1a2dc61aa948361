"""An axolotl that trains nothing: it plays our plugin's part in events.jsonl and control.json.

`axolotl train FILE … [--resume-from-checkpoint DIR]` goes through PLANNED steps, a moment each.
The environment variable FAKE_AXOLOTL says what goes wrong, as words:

    spike           an alarm at step 24 (onset 22) of attempt 1, after which it waits
    spike-always    the same in every attempt
    deaf            it waits, but never answers
    gone            it says that it waits and is gone
    memory          out of memory at step 3 when micro_batch_size is above 4
    hang            stands still after step 24 of attempt 1
    hang-always     the same in every attempt
    hang-loading    stands still before the first step

Not covered: checkpoints; a test makes those that it needs.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml

from pod import events
from pod.pulse import Heart
from pod.rundir import RunDir, read_json
from tests.checkpoints import safetensors

PLANNED = 40
ONSET, ALARM = 22, 24
HANG = 24
FULL = 3
STEP_S = 0.002


class Fake:
    """One process; an attempt is what attempt.json says when it begins."""

    def __init__(self, run_dir: RunDir, words: set[str], axolotl: dict[str, Any]) -> None:
        self.run_dir = run_dir
        self.words = words
        self.axolotl = axolotl
        self.attempt = 0

    def say(self, kind: str, step: int = 0, **fields: Any) -> None:
        """Append an event."""
        events.append(self.run_dir.events, kind, self.attempt, step, **fields)

    def train(self, seq: int | None = None) -> int:
        """Train the attempt that attempt.json names; `seq` is the command that led here."""
        orders = read_json(self.run_dir.attempt_file) or {}
        self.attempt, start = orders["attempt"], orders["from_checkpoint"] or 0
        if seq is not None:
            self.say("rewound", start, seq=seq, from_checkpoint=start, rung=orders["rung"])
        heart = Heart(self.run_dir)
        heart.enter("loading", start)
        if "hang-loading" in self.words and "HF_HUB_DISABLE_XET" not in os.environ:
            stand_still()
        self.say("armed", planned_steps=PLANNED, logging_steps=1, save_steps=5)
        for step in range(start + 1, PLANNED + 1):
            if step == FULL and "memory" in self.words and self.axolotl["micro_batch_size"] > 4:
                self.say("error", step - 1, error="OutOfMemoryError", message="", cuda_oom=True)
                return 1
            self.say("step", step, loss=8.0 if step >= ONSET else 2.0, grad_norm=1.0, lr=0.1)
            heart.enter("training", step)
            if step == HANG and self._hangs():
                heart.write()  # its thread would do so within a second
                stand_still()
            if step == ALARM and self._spikes():
                return self._alarm(warm=bool(orders["warm_seconds"]))
            time.sleep(STEP_S)
        (self.run_dir.out / "model.safetensors").write_bytes(safetensors())
        self.say("end", PLANNED, planned_steps=PLANNED, finished=True, files=["model.safetensors"])
        return 0

    def _spikes(self) -> bool:
        return "spike-always" in self.words or ("spike" in self.words and self.attempt == 1)

    def _hangs(self) -> bool:
        return "hang-always" in self.words or ("hang" in self.words and self.attempt == 1)

    def _alarm(self, *, warm: bool) -> int:
        fields = {"onset_step": ONSET, "alarm": "jump", "reason": "loss 8 over 2"}
        self.say("alarm", ALARM, **fields, waiting=warm)
        if not warm or "gone" in self.words:
            return 1
        while True:
            command = read_json(self.run_dir.control)
            if command is not None and "deaf" not in self.words:
                if command["cmd"] == "rewind" and command["attempt"] > self.attempt:
                    return self.train(command["seq"])
                self.say("decision", ALARM, seq=command["seq"], cmd=command["cmd"], done=True)
                return 1
            time.sleep(STEP_S)


def stand_still() -> None:
    """Never come back."""
    threading.Event().wait()


def main() -> None:
    """Play the trainer of AXR_RUN_DIR."""
    faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
    run_dir = RunDir(Path(os.environ["AXR_RUN_DIR"]))
    run_dir.out.mkdir(exist_ok=True)
    axolotl = yaml.safe_load(Path(sys.argv[2]).read_text())
    words = set(os.environ.get("FAKE_AXOLOTL", "").split())
    sys.exit(Fake(run_dir, words, axolotl).train())


if __name__ == "__main__":
    main()
