"""Secrets stay out of what a process says: one hook for each of the ways in which it speaks.

Contract of `scrub_all_output`, called once by every process that runs flows (flows/__init__.py):
- each log record is scrubbed when it is made, so that every handler (console, API, files) and
  `print` under `log_prints` get clean text, tracebacks included;
- each state that this process makes has a clean message, also those that Prefect makes of
  exceptions that nobody caught; so has each artifact clean data and a clean description;
- the traceback of a process that dies is clean.

Labels, notices and files are text that we make ourselves: they call `runner.secrets.scrub`.

Not covered: what a library writes to the standard output by itself, past `logging`.
"""

from __future__ import annotations

import logging
import sys
import traceback
from functools import wraps
from types import TracebackType
from typing import Any

from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import State
from pydantic import BaseModel

from runner.secrets import scrub, scrub_plain

_DONE = "_axr_scrubs"


def scrub_all_output() -> None:
    """Scrub all that this process logs, the states and artifacts that it makes, and its last words;
    safe to repeat.
    """
    _scrub_logs()
    _scrub_fields(State, "message")
    for artifact in (ArtifactCreate, ArtifactUpdate):
        _scrub_fields(artifact, "data", "description")
    sys.excepthook = _last_words


def _scrub_logs() -> None:
    make = logging.getLogRecordFactory()
    if hasattr(make, _DONE):
        return

    @wraps(make)
    def make_clean(*args: Any, **kwargs: Any) -> logging.LogRecord:
        return _clean(make(*args, **kwargs))

    setattr(make_clean, _DONE, True)
    logging.setLogRecordFactory(make_clean)


def _clean(record: logging.LogRecord) -> logging.LogRecord:
    try:
        message = record.getMessage()
    except (TypeError, ValueError, KeyError):  # a bad format: `logging` says so itself
        record.args = scrub_plain(record.args)
        return record
    if scrub(message) != message:
        # Some formatters read the arguments, so they stay where that is enough.
        record.args = scrub_plain(record.args)
        if scrub(message := record.getMessage()) != message:
            record.msg, record.args = scrub(message), ()
    if record.exc_info and record.exc_info[0] is not None:
        told = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        if (clean := scrub(told)) != told:
            record.exc_text = clean  # formatters take this instead of the exception
            record.exc_info = None
    return record


def _scrub_fields(model: type[BaseModel], *names: str) -> None:
    """Scrub these fields of each such object that this process makes; those that are read from the
    server are as they are.
    """
    make = model.__init__
    if hasattr(make, _DONE):
        return

    @wraps(make)
    def make_clean(self: BaseModel, /, *args: Any, **values: Any) -> None:
        values.update({name: scrub_plain(values[name]) for name in names if name in values})
        make(self, *args, **values)

    setattr(make_clean, _DONE, True)
    model.__init__ = make_clean  # type: ignore[method-assign]


def _last_words(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.stderr.write(scrub("".join(traceback.format_exception(kind, error, trace))))
