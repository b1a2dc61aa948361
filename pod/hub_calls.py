"""Calls to the Hugging Face hub: again while it is busy or away, at once over when it refuses.

The plain HTTP transfer is meant: start the process with HF_HUB_DISABLE_XET=1 (pod.saving does).
hf-xet takes many threads from the trainer, and its transfers are known to stand still. Without it a
single file may have 50 GB.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import httpx2
from huggingface_hub import set_client_factory
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils.tqdm import disable_progress_bars

from pod.store.places import Changed

TRIES = 5
WAIT_S = 2.0  # before the second try; doubled for each further one
MOST_WAIT_S = 310.0  # the hub counts calls in windows of five minutes
STALL_S = 60.0  # the library's own default is to wait for ever
BUSY = (408, 409, 412, 429, 500, 502, 503, 504)
# Nothing that we could do again changes these: the key, the rights, the storage, the size.
REFUSED = (401, 402, 403, 413)

T = TypeVar("T")


def patiently(
    call: Callable[[], T], *, sleep: Callable[[float], None] = time.sleep, confirm: bool = False
) -> T:
    """Call again after a while when the hub is busy or away; it says for how long, mostly.

    `confirm`: what it refuses is asked once more, for a gateway may have said it by mistake.
    """
    confirmed = not confirm
    for left in reversed(range(TRIES)):
        try:
            return call()
        except (HfHubHTTPError, httpx2.TransportError, OSError, RuntimeError) as error:
            again = is_passing(error)
            if status_of(error) in REFUSED and not confirmed:
                confirmed = again = True
            if not left or not again:
                raise
            sleep(_wait_of(error, WAIT_S * 2 ** (TRIES - 1 - left)))
    raise AssertionError("the last try returns or raises")


def is_passing(error: BaseException) -> bool:
    """Whether the same call may well succeed later."""
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            return cause.response.status_code in BUSY
        if isinstance(cause, Changed):
            return False
        if isinstance(cause, httpx2.TransportError):
            return True
    return isinstance(error, OSError) and "Consistency check failed" in str(error)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that is behind an error, None when there was no answer."""
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            return int(cause.response.status_code)
    return None


def words_of(error: BaseException) -> str:
    """What the hub says, in one line: `403 storage patterns tripped`."""
    for cause in _causes(error):
        if isinstance(cause, HfHubHTTPError):
            message = " ".join((cause.server_message or str(cause)).split())[:200]
            return f"{cause.response.status_code} {message}"
    return root(error)


def root(error: BaseException) -> str:
    """The innermost cause: the library wraps what a thread of its met."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


@functools.cache
def set_up_library() -> None:
    """No progress bars, and an end to each wait, for this whole process."""
    disable_progress_bars()
    set_client_factory(lambda: httpx2.Client(follow_redirects=True, timeout=STALL_S))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _wait_of(error: BaseException, usual: float) -> float:
    response = getattr(error, "response", None)
    headers = response.headers if response is not None else {}
    given = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*", headers.get("Retry-After", ""))
    given = given or re.search(r";\s*t=(\d+)", headers.get("RateLimit", ""))
    return min(float(given[1]), MOST_WAIT_S) if given else usual
