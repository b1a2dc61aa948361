"""What one attempt did, and how it travels from the pod to the parent.

A child's results stay on its pod's disk; only its state's name and message reach the parent. So the
message is written for people (reason, last lines of the log) and carries the facts as one line of
JSON at its end.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from runner.diagnosis import Diagnosis
from runner.diagnosis import from_plain as diagnosis_from_plain
from runner.errors import Outcome
from runner.postmortem import PostMortem, from_plain
from runner.report import Rung
from runner.secrets import scrub_plain


@dataclass(frozen=True)
class CheckpointFact:
    """A checkpoint on the pod's volume; `health` is healthy, suspect or unrecorded.

    `where` is its path from the run's folder, such as `out/checkpoint-20`.
    """

    step: int
    health: str
    where: str | None = None


@dataclass(frozen=True)
class AttemptFacts:
    """One pass of the trainer.

    Steps are 1-based and inclusive, None if none; the curve is (step, loss), and so are the
    evaluations, a loss that is not finite as text: JSON has no NaN. The post-mortem is mostly that
    of the attempt before, for only healthy weights can tell which rows are bad. `diagnosis` says
    why a failed one failed.
    """

    n: int
    outcome: Outcome
    reason: str
    from_checkpoint: int | None = None
    first_step: int | None = None
    last_step: int | None = None
    onset_step: int | None = None
    alarm_step: int | None = None
    planned_steps: int | None = None
    final_loss: float | None = None
    rung: Rung | None = None
    note: str | None = None
    pod: str | None = None
    cloud: str | None = None
    trainer_seconds: float | None = None
    tail: tuple[str, ...] = ()
    checkpoints: tuple[CheckpointFact, ...] = ()
    quarantined: tuple[str, ...] = ()
    curve: tuple[tuple[int, float | str | None], ...] = ()
    evals: tuple[tuple[int, float | str | None], ...] = ()
    postmortem: PostMortem | None = None
    diagnosis: Diagnosis | None = None

    @property
    def progressed(self) -> bool:
        """True when the attempt got past the checkpoint it started from."""
        return self.last_step is not None and self.last_step > (self.from_checkpoint or 0)


def to_message(facts: AttemptFacts) -> str:
    """The state message, without secrets: reason, note, last lines of the log, the facts as one
    line of JSON.
    """
    plain = scrub_plain(asdict(facts))
    parts = [plain["reason"]]
    if facts.note:
        parts.append(plain["note"])
    if facts.outcome != "completed" and facts.tail:
        parts.append("\n".join(plain["tail"]))
    parts.append(json.dumps(plain, allow_nan=False, separators=(",", ":")))
    return "\n\n".join(parts)


def from_message(message: str | None) -> AttemptFacts | None:
    """The facts in a state message, None when it carries none (a child that died says nothing)."""
    line = (message or "").rstrip().rpartition("\n")[2]
    if not line.startswith('{"n":'):
        return None
    plain = json.loads(line)
    facts = AttemptFacts(**plain)
    return replace(
        facts,
        tail=tuple(facts.tail),
        quarantined=tuple(facts.quarantined),
        checkpoints=tuple(CheckpointFact(**fact) for fact in plain["checkpoints"]),
        curve=tuple((step, loss) for step, loss in facts.curve),
        evals=tuple((step, loss) for step, loss in facts.evals),
        postmortem=from_plain(plain.get("postmortem")),
        diagnosis=diagnosis_from_plain(plain.get("diagnosis")),
    )
