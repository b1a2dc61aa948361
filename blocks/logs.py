"""The logger of wherever we are: the flow run's own inside a run, a plain one in hooks and the
command line.
"""

from __future__ import annotations

import logging

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from prefect.logging.loggers import LoggingAdapter


def log() -> logging.Logger | LoggingAdapter:
    """The run's logger when there is a run, else `axolotl_runner`."""
    try:
        return get_run_logger()
    except MissingContextError:
        return logging.getLogger("axolotl_runner")
