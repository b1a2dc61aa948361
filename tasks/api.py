"""The Prefect API, and how to write to it while many others do.

SQLite answers "database is locked" (503) at once when two writers meet. Prefect's client then waits
2, 4, 8 s and so on; a few such meetings made a step of 0.2 s last 15 s. A meeting is over in
milliseconds, so our own writes ask again soon.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import SettingsContext, get_settings_context
from prefect.exceptions import PrefectHTTPStatusError
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, Settings

T = TypeVar("T")

# What an API that is away looks like; it decides nothing about a run.
API_AWAY = (httpx.TransportError, PrefectHTTPStatusError)

# 503 is SQLite's, 502 the gateway's while the API behind it is away.
AGAIN = (502, 503)
QUICK = 20
PAUSE = 0.1


class ApiLost(BaseException):
    """The Prefect API is away. No Exception, so that the run counts as crashed, not as failed."""


def api() -> SyncPrefectClient:
    """The Prefect API. One client for the process: a new one costs 30 ms for TLS settings alone."""
    return _client(str(PREFECT_API_URL.value()))


def write(call: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep) -> T:
    """Do a write that may be repeated: QUICK tries with short pauses, then the client's own way.

    Also after a connection that broke: one that was kept open may end just when it is used again.
    """
    with asking_once():
        for attempt in range(QUICK):
            try:
                return call()
            except httpx.TransportError:
                sleep(PAUSE * (1 + attempt % 5))
            except PrefectHTTPStatusError as error:
                if error.response.status_code not in AGAIN:
                    raise
                sleep(PAUSE * (1 + attempt % 5))
    return call()


def asking_once() -> AbstractContextManager[object]:
    """The client does not ask again by itself in this block."""
    now = get_settings_context()
    if not _once or _once[0] is not now.settings:
        changed = now.settings.copy_with_update(updates={PREFECT_CLIENT_MAX_RETRIES: 0})
        _once[:] = [now.settings, changed]
    return SettingsContext(profile=now.profile, settings=_once[1])


_once: list[Settings] = []  # the settings, and their copy, which takes 70 ms to make


@functools.cache
def _client(url: str) -> SyncPrefectClient:
    opened = get_client(sync_client=True)
    opened.__enter__()
    return opened
