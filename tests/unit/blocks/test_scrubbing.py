"""The hooks that keep secrets out of what a process says."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from io import StringIO

import pytest
from prefect.artifacts import MarkdownArtifact
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import State
from prefect.logging.handlers import APILogHandler
from prefect.states import Failed

from blocks.scrubbing import scrub_all_output

SECRET = "s3cr3t-of-the-run-42"


@pytest.fixture(autouse=True)
def scrubbing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hooks, and their end."""
    monkeypatch.setenv("MY_TOKEN", SECRET)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for model in (State, ArtifactCreate, ArtifactUpdate):
        monkeypatch.setattr(model, "__init__", model.__init__)
    factory = logging.getLogRecordFactory()
    scrub_all_output()
    scrub_all_output()
    yield
    logging.setLogRecordFactory(factory)


def _logged(*words: object, error: BaseException | None = None) -> str:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("test.scrubbing")
    logger.addHandler(handler)
    try:
        logger.error(*words, exc_info=error)
    finally:
        logger.removeHandler(handler)
    return stream.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        (f"token {SECRET}",),
        ("token %s of %d", SECRET, 1),
        ("token %(token)s", {"token": SECRET}),
        ("about %s", {"headers": [SECRET]}),
        ("about %s", ValueError(SECRET)),
    ],
)
def test_no_log_line_holds_a_secret(words: tuple[object, ...]) -> None:
    """In the text, in its arguments, in what they contain."""
    assert "[secret MY_TOKEN]" in _logged(*words)
    assert SECRET not in _logged(*words)


def test_tracebacks_are_scrubbed_and_still_name_the_error() -> None:
    """The cause too, for an error is mostly another's."""
    try:
        try:
            raise ValueError(f"bad {SECRET}")
        except ValueError as cause:
            raise RuntimeError(f"failed with {SECRET}") from cause
    except RuntimeError as error:
        said = _logged("It failed", error=error)
    assert SECRET not in said
    assert "RuntimeError: failed with [secret MY_TOKEN]" in said
    assert "ValueError: bad [secret MY_TOKEN]" in said


def test_other_lines_keep_their_arguments_and_tracebacks() -> None:
    """Formatters that read them (uvicorn's) go on working."""
    made = logging.getLogRecordFactory()
    record = made("n", 20, "f", 1, "step %d of %s", (3, "x"), None)
    assert record.args == (3, "x")
    record = made("n", 20, "f", 1, "%s %s", (SECRET, 200), None)
    assert record.args == ("[secret MY_TOKEN]", 200)


def test_a_line_with_a_wrong_format_is_logging_s_own_business() -> None:
    """As without us: it must not become an error of whoever logs."""
    record = logging.getLogRecordFactory()("n", 20, "f", 1, "%d %d", (SECRET,), None)
    assert record.args == ("[secret MY_TOKEN]",)


def test_the_handler_that_speaks_to_the_api_gets_clean_text() -> None:
    """Prefect formats the record that was made clean."""
    record = logging.getLogRecordFactory()("n", 20, "f", 1, "say %s", (SECRET,), None)
    record.flow_run_id = "0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77"
    handler = APILogHandler()
    assert SECRET not in str(handler.prepare(record))


def test_no_state_of_this_process_holds_a_secret() -> None:
    """Those that we return and those that Prefect makes of exceptions."""
    assert Failed(message=f"no {SECRET}").message == "no [secret MY_TOKEN]"
    assert Failed(name="LossSpike").message is None
    known = State.model_validate({"type": "FAILED", "message": "as the server has it"})
    assert known.message == "as the server has it"


def test_no_artifact_of_this_process_holds_a_secret() -> None:
    """The report, the table of pods, the progress."""
    made = MarkdownArtifact(markdown="x", key="k", data=f"| {SECRET} |", description=SECRET)
    assert (made.data, made.description) == ("| [secret MY_TOKEN] |", "[secret MY_TOKEN]")
    assert ArtifactCreate(key="k", data=[{"a": SECRET}]).data == [{"a": "[secret MY_TOKEN]"}]
    assert ArtifactUpdate(data=12.5, description=f"at {SECRET}").data == 12.5
    assert ArtifactUpdate(description=f"at {SECRET}").description == "at [secret MY_TOKEN]"
