"""report.json and the page made from it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

from runner.curve import CurvePoint
from runner.errors import Outcome
from runner.postmortem import PostMortem, SuspectRow
from runner.report import (
    SCHEMA_PATH,
    Attempt,
    PodBill,
    Report,
    Seconds,
    pod_cost,
    read_report,
    schema_text,
    state_of,
    write_report,
)
from runner.report_page import report_page

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
POINTS = [CurvePoint(1, step, 3.0 - step / 10) for step in range(1, 11)]


def _report(**changes: Any) -> Report:
    fields: dict[str, Any] = {
        "run": "3f0c6b1e",
        "task": "configs/toy.yml",
        "state": "completed",
        "outcome": "completed",
        "reason": "30 of 30 steps",
    }
    return Report(**{**fields, **changes})


def _full_report() -> Report:
    first = Attempt(
        n=1, pod="p", cloud="local", first_step=1, last_step=23, outcome="loss_spike",
        onset_step=21, alarm_step=23,
    )  # fmt: skip
    second = Attempt(
        n=2, pod="p", cloud="local", from_checkpoint=15, first_step=16, last_step=30,
        outcome="completed", rung={"kind": "lr", "factor": 0.5},
    )  # fmt: skip
    pod = PodBill(
        id="p", cloud="local", created=NOON, terminated=NOON + timedelta(minutes=3),
        price_per_hour=0.2, cost_usd=0.01,
    )  # fmt: skip
    return _report(
        commit="067b021c8", attempts=[first, second], final_step=30, planned_steps=30,
        final_loss=1.25, model_dir="runs/3f0c6b1e/out", published=True, pods=[pod], cost_usd=0.01,
        seconds=Seconds(train=42.5, total=60.0),
    )  # fmt: skip


def _refuse_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is no JSON")


def _strict(text: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(text, parse_constant=_refuse_constant)
    return parsed


def test_the_schema_in_the_repository_is_the_models() -> None:
    """A changed model without `python -m runner.report` run again is found here."""
    assert SCHEMA_PATH.read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize(
    "report",
    [
        _full_report(),
        _report(),
        _report(state="cancelled", outcome="cancelled", reason=""),
        _report(state="failed", outcome="no_capacity", final_loss=float("nan")),
    ],
)
def test_reports_keep_to_the_schema(report: Report) -> None:
    """What is written validates against the published schema."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(_strict(report.model_dump_json()))


def test_every_field_is_written_even_when_null() -> None:
    """Readers find each name of the contract in each report."""
    written = _strict(_report(pods=_full_report().pods, attempts=[Attempt(n=1)]).model_dump_json())
    assert " ".join(written) == (
        "run task commit state outcome reason attempts final_step planned_steps final_loss "
        "model_dir published pods cost_usd seconds diagnosis wandb"
    )
    assert " ".join(written["attempts"][0]) == (
        "n pod cloud from_checkpoint first_step last_step outcome onset_step alarm_step rung"
    )
    assert " ".join(written["pods"][0]) == ("id cloud created terminated price_per_hour cost_usd")
    assert " ".join(written["seconds"]) == ("provision prepare train resume publish teardown total")


def test_a_report_read_back_is_the_one_written(tmp_path: Path) -> None:
    """Writing makes the folder, returns report.json's path and loses nothing."""
    path = write_report(_full_report(), tmp_path / "runs" / "3f0c6b1e")
    assert path == tmp_path / "runs" / "3f0c6b1e" / "report.json"
    assert read_report(path) == _full_report()
    assert [file.name for file in path.parent.iterdir()] == ["report.json"]


def test_a_write_that_fails_leaves_the_old_report_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk at the end of a run does not cost an earlier report (case H41)."""
    path = write_report(_report(), tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("runner.report.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_report(_full_report(), tmp_path)
    assert read_report(path) == _report()
    assert [file.name for file in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), "nan", "-inf", None])
def test_a_loss_that_is_not_finite_is_null(loss: float | str | None) -> None:
    """Neither NaN nor Infinity appears as a JSON token; events.jsonl's strings count as such."""
    assert _strict(_report(final_loss=loss).model_dump_json())["final_loss"] is None


def test_nothing_else_is_written_as_nan() -> None:
    """Rungs, durations and prices are null where they are not finite."""
    nan = float("nan")
    report = _report(
        attempts=[Attempt(n=1, rung={"factor": nan})],
        seconds=Seconds(train=nan),
        pods=[PodBill(id="p", cloud="vast", created=NOON, price_per_hour=nan, cost_usd=nan)],
    )
    written = _strict(report.model_dump_json())
    assert written["attempts"][0]["rung"] == {"factor": None}
    assert written["seconds"]["train"] is None
    assert (written["pods"][0]["price_per_hour"], written["pods"][0]["cost_usd"]) == (None, None)


def test_times_are_utc_with_a_z_and_money_has_four_digits() -> None:
    """A time of another zone is turned into UTC."""
    created = datetime(2026, 11, 30, 13, 0, 0, 123987, tzinfo=timezone(timedelta(hours=1)))
    pod = PodBill(id="p", cloud="runpod", created=created, price_per_hour=0.49, cost_usd=0.123456)
    written = _strict(_report(pods=[pod], cost_usd=0.123456).model_dump_json())
    assert written["pods"][0]["created"] == "2026-11-30T12:00:00.123Z"
    assert written["pods"][0]["cost_usd"] == written["cost_usd"] == 0.1235


@pytest.mark.parametrize(
    "changes",
    [
        {"surprise": 1},
        {"state": "completed", "outcome": "loss_spike"},
        {"state": "failed", "outcome": "cancelled"},
        {"outcome": "sideways"},
        {"cost_usd": -1.0},
        {"cost_usd": float("nan")},
        {"final_step": -3},
        {"pods": [{"id": "p", "cloud": "local", "created": "2026-11-30T12:00:00"}]},
    ],
)
def test_a_report_that_contradicts_the_contract_is_refused(changes: dict[str, Any]) -> None:
    """A loss spike is never `completed`, unknown fields and times without a zone are errors."""
    with pytest.raises(ValidationError):
        _report(**changes)


def test_step_zero_of_the_events_is_no_step() -> None:
    """Steps are 1-based; 0 stands for "none yet" in events.jsonl and is null here."""
    assert _report(final_step=0).final_step is None


def test_a_reason_is_one_writable_line(tmp_path: Path) -> None:
    """Line breaks, lone surrogates and kilobytes of trainer output do not stop the report."""
    report = _report(reason="first\nsecond \udcff" + "x" * 5000)
    assert report.reason.startswith("first second ?xxx")
    assert len(report.reason) == 1000
    assert read_report(write_report(report, tmp_path)) == report


@pytest.mark.parametrize(
    ("minutes", "price", "cost"), [(60, 0.49, 0.49), (1, 0.0007, 0.0), (-5, 1.0, 0.0), (None, 3, 6)]
)
def test_a_pod_is_billed_until_it_ended_or_until_now(
    minutes: int | None, price: float, cost: float
) -> None:
    """A living pod is billed until now (two hours here), a clock ahead of ours costs nothing."""
    ended = None if minutes is None else NOON + timedelta(minutes=minutes)
    assert pod_cost(NOON, ended, price, now=NOON + timedelta(hours=2)) == cost


@pytest.mark.parametrize(
    ("until", "idle", "cost"), [(30, 0.1, 0.55), (-5, 0.1, 1.0), (90, 0.1, 0.1), (None, 0.1, 1.0)]
)
def test_a_pod_costs_less_while_it_loads(until: int | None, idle: float, cost: float) -> None:
    """An hour at a dollar, less what it was loading; never more than its lifetime."""
    loading = None if until is None else NOON + timedelta(minutes=until)
    end = NOON + timedelta(hours=1)
    assert pod_cost(NOON, end, 1.0, NOON, loading_until=loading, loading_per_hour=idle) == cost


def test_states_follow_from_outcomes() -> None:
    """Only `completed` completes and only `cancelled` is cancelled."""
    assert state_of("completed") == "completed"
    assert state_of("cancelled") == "cancelled"
    assert state_of("budget") == "failed"


# The page


def test_the_page_tells_the_whole_story_in_short() -> None:
    """Headline, facts, picture, attempts, pods and phases, each once."""
    page = report_page(_full_report(), POINTS, links={"Prefect": "http://x/y"}, picture="curve.png")
    assert page.startswith("# ✔ completed\n\n30 of 30 steps\n\n")
    assert "| 30 of 30 | 1.25 | 2 | 60.0 s | $0.0100 | published |" in page
    assert "model `runs/3f0c6b1e/out`" in page
    assert "[Prefect](<http://x/y>)" in page
    assert "![Loss over steps, attempts in colours](curve.png)" in page
    assert "| 1 | the start | 1–23 | – | loss spike | 21 → 23 | p |" in page
    assert "| 2 | checkpoint 15 | 16–30 | lr, factor 0.5 | completed | – | p |" in page
    assert "| p | local | 2026-11-30 12:00:00Z | 2026-11-30 12:03:00Z | $0.20 | $0.0100 |" in page
    assert "| train | 42.5 s | 71 % | █████████████████ |" in page
    assert "| **total** | **60.0 s** |" in page
    assert len(page.splitlines()) < 40


def test_the_page_for_an_artifact_carries_its_picture() -> None:
    """Without an address the curve is embedded, because an artifact has no files beside it."""
    page = report_page(_full_report(), POINTS, links={})
    assert "](data:image/png;base64,iVBORw0KGgo" in page
    assert len(page) < 200_000


def test_a_failing_check_gives_a_page_without_attempts_pods_or_curve() -> None:
    """Nothing was rented: no empty tables; what to do is said."""
    report = _report(state="failed", outcome="config_error", reason="toy.yml:3: no such key")
    page = report_page(report, [], links={})
    assert page.startswith("# ✖ failed: config error\n\ntoy.yml:3: no such key")
    assert re.findall("^## .*", page, re.MULTILINE) == ["## How to go on"]
    assert "Correct the task file" in page
    assert "![" not in page


def test_text_from_outside_breaks_neither_tables_nor_html_nor_fences() -> None:
    """Pipes, tags and backticks of names and logs stay text (case H61)."""
    report = _report(
        state="failed", outcome="crash", task="a|b`c.yml", reason="<img src=x> | y",
        attempts=[Attempt(n=1, pod="x|y\nz", outcome="crash")],
    )  # fmt: skip
    page = report_page(report, [], links={"a|b": "http://x/a|b c"}, log="one\n```\n# two\x1b[31m\r")
    assert "`a\\|b'c.yml`" in page
    assert "\\<img src=x\\> \\| y" in page
    assert "| x\\|y z |" in page
    assert "[a\\|b](<http://x/a%7Cb%20c>)" in page
    assert "\n````text\none\n```\n# two\n````\n" in page


def test_a_completed_run_shows_no_log() -> None:
    """The last lines are for whoever has to find out why."""
    assert "fine" not in report_page(_report(), [], links={}, log="fine")


def test_the_page_shows_what_was_in_the_batch() -> None:
    """The worst rows stand there in a table that their text can't break."""
    rows = (SuspectRow(24, 7, 11.52, "a | b <script> `x`", 12), SuspectRow(23, None, None, ""))
    found = PostMortem(1, 23, 28, rows, lr=0.004, grad_norm=45.2)
    page = report_page(_full_report(), POINTS, links={}, picture="c.png", postmortems=[found])
    assert "## What was in the batch" in page
    assert "Attempt 1, steps 23–28 (learning rate 0.004, grad_norm up to 45.2), worst first" in page
    assert "| 24 | 7 | 11.52 | 12 | `a \\| b <script> 'x'` |" in page
    assert "| 23 | – | – | – | – |" in page


def test_without_a_post_mortem_nothing_is_said_of_batches() -> None:
    """A run without an alarm, or whose data has no rows to name."""
    page = report_page(
        _full_report(), POINTS, links={}, picture="c.png", postmortems=[PostMortem(1, 2, 3)]
    )
    assert "What was in the batch" not in page


@pytest.mark.parametrize(
    ("rung", "shown"),
    [
        ({"kind": "skip", "first": 24, "last": 28}, "skipping steps 24-28"),
        ({"kind": "scale", "learning_rate": 0.5}, "learning_rate x0.5"),
        ({"kind": "replay"}, "replay"),
    ],
)
def test_the_page_says_rungs_in_words(rung: dict[str, Any], shown: str) -> None:
    """The same words as in the notice and in the name of the flow run."""
    page = report_page(_report(attempts=[Attempt(n=2, rung=rung)]), [], links={})
    assert f"| {shown} |" in page


@pytest.mark.parametrize(
    ("outcome", "healthy", "said"),
    [
        ("loss_spike", 20, "axolotl-runner resume 3f0c6b1e\n```\n\nIt goes on from checkpoint 20,"),
        ("crash", None, "axolotl-runner resume 3f0c6b1e\n```\n\nIt goes on from the start"),
        ("budget", 20, "axolotl-runner resume 3f0c6b1e --budget 1.00\n"),
    ],
)
def test_a_run_that_did_not_complete_says_how_to_go_on(
    outcome: Outcome, healthy: int | None, said: str
) -> None:
    """The very line to type, and where it starts."""
    report = _report(state="failed", outcome=outcome)
    assert said in report_page(report, [], links={}, healthy=healthy)


def test_a_completed_run_has_nowhere_to_go_on() -> None:
    """Nor has it a log to show."""
    assert "How to go on" not in report_page(_report(), [], links={}, healthy=30)


def test_time_that_belongs_to_no_phase_is_shown() -> None:
    """Waiting for a place or for a worker is part of the whole."""
    page = report_page(_report(seconds=Seconds(train=40.0, total=100.0)), [], links={})
    assert "| between | 60.0 s | 60 % |" in page
