"""The end of a run in one file: report.json, report.md with the curve, and the same as an artifact
in the UI.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from prefect import task
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.objects import FlowRun

from runner.attempts import AttemptFacts
from runner.curve import CurvePoint
from runner.diagnosis import Diagnosis as Found
from runner.diagnosis import in_few_words
from runner.errors import ConfigError, Outcome
from runner.home import home
from runner.notice import Kind
from runner.postmortem import newest_of_each
from runner.report import Attempt, Diagnosis, PodBill, Report, Seconds, state_of, write_report
from runner.report_page import report_curve, report_page
from runner.secrets import scrub
from runner.settings import NotifySettings
from tasks.api import api, write
from tasks.diagnosing import diagnosis_of
from tasks.matrix import show_comparison_of
from tasks.notify import deliver, links_of
from tasks.pushing import answer_end
from tasks.run import Run, open_order
from tasks.spending import cost_of
from tasks.standing import attempts, children, pods_of, recall
from tasks.wandb_story import end_story, wandb_facts

CURVE_NAME = "curve.png"


@task
def report(run: Run, outcome: Outcome, reason: str, published: str | None) -> Path:
    """Write the report of a run that has ended and tell people; safe to repeat."""
    done = attempts(run.id)
    found = diagnosis_of(run.id, outcome, reason, done)
    made = make_report(run, outcome, reason, published, done, found)
    log = "\n".join(done[-1].tail) if done and outcome != "completed" else ""
    log = log or "\n".join(found.lines if found else ())
    path = write_report(made, run.folder)
    _write_page(run, made, done, log)
    kind: Kind = "completed" if outcome == "completed" else "failed"
    settings = _notify_settings(run.id)
    said = in_few_words(reason, found)
    deliver(run, settings, kind, said, outcome=outcome, facts=_final(made), log=log)
    answer_end(run, outcome, reason)
    show_comparison_of(run)
    end_story(run, outcome, made.reason, log, _summary(made))
    return path


def _write_page(run: Run, made: Report, done: list[AttemptFacts], log: str) -> None:
    """report.md beside report.json, and the same page as an artifact in the UI."""
    points, measured = curve(done), evals(done)
    png = report_curve(made.attempts, points, measured, title=made.task)
    (run.folder / CURVE_NAME).write_bytes(png)
    embedded = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    links = links_of(run.id, recall(run.id))
    found = newest_of_each(attempt.postmortem for attempt in done)
    healthy = last_healthy(done)

    def page(picture: str) -> str:
        return scrub(
            report_page(
                made,
                points,
                links=links,
                picture=picture,
                log=log,
                postmortems=found,
                healthy=healthy,
            )
        )

    (run.folder / "report.md").write_text(page(CURVE_NAME), encoding="utf-8")
    artifact = ArtifactCreate(
        key=f"report-{run.id}",
        type="markdown",
        data=page(embedded),
        description=f"{made.task}: {made.outcome.replace('_', ' ')}",
        flow_run_id=UUID(run.id),
    )
    prefect = api()
    write(lambda: prefect.create_artifact(artifact))


def curve_so_far(run_id: str) -> Path | None:
    """Draw what the finished attempts of a run logged, into its folder; None when that is nothing.

    A run's end draws it anew.
    """
    done = attempts(run_id)
    points = curve(done)
    if not points:
        return None
    title = str(api().read_flow_run(UUID(run_id)).parameters.get("task_file", ""))
    png = report_curve([_attempt(attempt) for attempt in done], points, evals(done), title=title)
    path = home().run(run_id) / CURVE_NAME
    path.write_bytes(png)
    return path


def make_report(
    run: Run,
    outcome: Outcome,
    reason: str,
    published: str | None,
    done: list[AttemptFacts],
    found: Found | None = None,
) -> Report:
    """The report, derived from Prefect alone: the run's labels and what its children said; with
    what was `found` to have ended a failed one.
    """
    now = datetime.now(UTC)
    facts = recall(run.id)
    pods = [_bill(pod_id, bill, now) for pod_id, bill in pods_of(facts).items()]
    last = done[-1] if done else None
    model = run.folder / "model"
    return Report(
        run=run.id,
        task=run.task_file,
        commit=run.commit,
        state=state_of(outcome),
        outcome=outcome,
        reason=reason,
        attempts=tuple(_attempt(attempt) for attempt in done),
        final_step=last.last_step if last else None,
        planned_steps=next((a.planned_steps for a in reversed(done) if a.planned_steps), None),
        final_loss=last.final_loss if last else None,
        model_dir=home().relative(model) if model.exists() and outcome == "completed" else None,
        published=bool(published),
        pods=tuple(pods),
        cost_usd=sum(pod.cost_usd or 0.0 for pod in pods),
        seconds=_seconds(run, facts, now),
        diagnosis=_diagnosis(found),
        wandb=wandb_facts(run),
    )


def curve(done: list[AttemptFacts]) -> list[CurvePoint]:
    """The loss of all attempts, as far as the children's messages carry it."""
    return [
        CurvePoint(attempt.n, step, float(loss) if loss is not None else None)
        for attempt in done
        for step, loss in attempt.curve
    ]


def _diagnosis(found: Found | None) -> Diagnosis | None:
    if found is None:
        return None
    return Diagnosis.model_validate(
        {"class": found.kind, "lines": found.lines, "advice": found.advice}
    )


def evals(done: list[AttemptFacts]) -> list[CurvePoint]:
    """The losses of the evaluations of all attempts."""
    return [
        CurvePoint(attempt.n, step, float(loss))
        for attempt in done
        for step, loss in attempt.evals
        if loss is not None
    ]


def last_healthy(done: list[AttemptFacts]) -> int | None:
    """The step that a run which goes on starts from; None when it starts anew."""
    known = done[-1].checkpoints if done else ()
    return max((each.step for each in known if each.health == "healthy"), default=None)


def _attempt(facts: AttemptFacts) -> Attempt:
    return Attempt(
        n=facts.n,
        pod=facts.pod,
        cloud=facts.cloud,
        from_checkpoint=facts.from_checkpoint,
        first_step=facts.first_step,
        last_step=facts.last_step,
        outcome=facts.outcome,
        onset_step=facts.onset_step,
        alarm_step=facts.alarm_step,
        rung=facts.rung,
    )


def _bill(pod_id: str, bill: dict[str, object], now: datetime) -> PodBill:
    created = datetime.fromisoformat(str(bill["created"]))
    ended = datetime.fromisoformat(str(bill["terminated"])) if bill["terminated"] else None
    price = float(str(bill["price_per_hour"]))
    return PodBill(
        id=pod_id,
        cloud=str(bill["cloud"]),
        created=created,
        terminated=ended,
        price_per_hour=price,
        cost_usd=cost_of(bill, now),
    )


def _seconds(run: Run, facts: dict[str, str], now: datetime) -> Seconds:
    """Phases from the labels; train and resume from the children: resume is the time between two
    attempts.
    """
    noted = {key: float(facts[f"seconds.{key}"]) for key in PHASES if f"seconds.{key}" in facts}
    trained = [child for child in children(run.id) if child.name.startswith("train-")]
    return Seconds(**noted, **_train_seconds(trained), total=(now - run.began).total_seconds())


PHASES = ("provision", "prepare", "publish", "teardown")


def _train_seconds(trained: list[FlowRun]) -> dict[str, float]:
    spans = [
        (child.start_time, child.end_time)
        for child in trained
        if child.start_time and child.end_time
    ]
    found: dict[str, float] = {}
    if spans:
        found["train"] = sum((end - start).total_seconds() for start, end in spans)
    if len(spans) > 1:
        found["resume"] = sum(
            max(0.0, (later[0] - earlier[1]).total_seconds()) for earlier, later in pairwise(spans)
        )
    return found


def _final(made: Report) -> dict[str, object]:
    facts = {
        "step": f"{made.final_step}/{made.planned_steps}",
        "loss": made.final_loss,
        "model": made.model_dir,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _summary(made: Report) -> dict[str, object]:
    """What W&B shows of the end beside the curves."""
    return {
        "runner/outcome": made.outcome,
        "runner/reason": made.reason,
        "runner/attempts": len(made.attempts),
        "runner/cost_usd": made.cost_usd,
        "runner/final_loss": made.final_loss,
    }


def _notify_settings(run_id: str) -> NotifySettings:
    """Who is told of the end; a task file that can't be read tells whoever is told by default."""
    try:
        return open_order(run_id).settings.notify
    except ConfigError:
        return NotifySettings()
