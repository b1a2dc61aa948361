"""Sends notices to the places named by Apprise URLs.

Contract:
- `begin` returns at once and never raises; what came of it is an answer in a queue;
- answers name no URL, and `place_of` names a place by its scheme only (`discord`), since the rest
  of such a URL is a password;
- Apprise's own log is shut off: at debug level it holds whole URLs.

Runs do not call this: they leave their notices in the outbox, whose postman tries again later.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import parse_qsl, urlsplit

from prefect.blocks.core import Block
from prefect.exceptions import MissingContextError
from prefect.logging import get_logger, get_run_logger
from pydantic import Field, SecretStr

from runner.errors import TryAgain
from runner.notice import Notice
from runner.secrets import learn

if TYPE_CHECKING:
    from apprise import AppriseResult

# Discord refuses larger uploads of a server without boosts (10 MiB since September 2024).
ATTACHMENT_BYTES = 9 * 1024 * 1024

# An embed has the colour of the notice's type, plain content has none. Without fields=no Apprise
# makes each line that begins with `#` (a comment in a traceback) a field of its own.
DISCORD_DEFAULTS = {"format": "markdown", "fields": "no", "footer": "no", "avatar": "no"}
# Where the name above an embed leads to; Discord refuses an empty address.
APP_URL = "https://github.com/axolotl-ai-cloud/axolotl"
_DISCORD = re.compile(r"(discord://|https://discord(app)?\.com/api/webhooks/)", re.IGNORECASE)

_THREAD_NAME = "axr-notice"
# Statuses after which the same request may succeed later: too slow, too many, the other side's.
_LATER = re.compile(r"HTTP (408|425|429|5\d\d)")
# In Discord's answer to too many requests, and in those of the services that copied it.
_RETRY_AFTER = re.compile(r'"retry_after": ?([0-9.]+)')


@dataclass(frozen=True)
class Answer:
    """What came of sending to one place: empty when it took the notice.

    `problem` says in a few words what went wrong, without the URL; `later` whether it is worth
    another try, `after` how many seconds the service asks to wait with that, where it says so.
    """

    problem: str = ""
    later: bool = False
    after: float | None = None


class Notifier(Block):
    """Where the notices of runs go: any services that Apprise knows, Discord among them."""

    _block_type_name: ClassVar[str | None] = "Axolotl Notifier"
    _block_type_slug: ClassVar[str | None] = "axolotl-notifier"

    urls: list[SecretStr] = Field(
        default_factory=list,
        description="Apprise URLs, such as discord://webhook_id/webhook_token.",
    )


def places(block: str | None, urls_from_env: str | None) -> list[str]:
    """The URLs of the named block; else those of AXR_NOTIFY_URLS, separated by spaces. They are
    secrets, and known as such from here on.

    A block that is not there is a warning, and the URLs of the environment are used; TryAgain when
    the server does not say.
    """
    urls = (urls_from_env or "").split()
    if block:
        try:
            # _sync: the answer and not a coroutine, also where an event loop runs.
            found = Notifier.load(block, _sync=True)  # type: ignore[call-arg]
            urls = [url.get_secret_value() for url in found.urls]  # type: ignore[union-attr]
        except (ValueError, TypeError) as error:  # no such block, or one of another kind
            _log().warning("Notifier block %r can't be loaded (%s).", block, type(error).__name__)
        except Exception as error:  # a border: whatever a server that is away looks like
            raise TryAgain(f"the notifier block {block!r} can't be read now") from error
    learn({f"notice_url_{number}": url for number, url in enumerate(urls, 1)})
    return urls


def begin(url: str, notice: Notice, attach: Path | None = None) -> SimpleQueue[Answer]:
    """Start sending to one place, in a daemon thread; the queue gets the answer when there is one.

    A thread, because a service's own timeouts add up to more than anybody should wait.
    """
    answer: SimpleQueue[Answer] = SimpleQueue()
    _hush_libraries()

    def send() -> None:
        try:
            answer.put(_send(url, notice, attach))
        except Exception as error:  # a border: any of 130 plugins; its text may hold the URL
            answer.put(Answer(type(error).__name__))

    try:
        threading.Thread(target=send, name=_THREAD_NAME, daemon=True).start()
    except RuntimeError:  # no thread to be had, as at the exit of the interpreter
        answer.put(Answer("no thread left", later=True))
    return answer


def _send(url: str, notice: Notice, attach: Path | None) -> Answer:
    from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType

    # No asynchronous mode and no service timeout: both use a pool of Apprise's own, whose
    # threads are joined at exit and would hold a finished process up.
    asset = AppriseAsset(
        app_id="axolotl-runner", app_url=APP_URL, async_mode=False, service_timeout=0
    )
    apprise = Apprise(asset=asset)
    if not apprise.add(_with_defaults(url)):
        return Answer("not a URL that Apprise knows")
    result = apprise.notify(
        notice.body,
        title=notice.title,
        notify_type=NotifyType(notice.notify_type),
        body_format=NotifyFormat.MARKDOWN.value,
        attach=[str(attach.resolve())] if attach and _is_sendable(attach) else None,
        log_level=logging.DEBUG,  # its log of the call holds the service's answer
    )
    # Truthiness only: since Apprise 2 this is an object, and neither `is False` nor `== False`
    # holds for a failed one.
    return Answer() if result else _answer(result)


def _answer(result: AppriseResult) -> Answer:
    """From Apprise's log of the call: the HTTP status, and when to come back; no other text of it,
    which may hold the URL.
    """
    said = " ".join(entry.message for entry in result.logs())
    codes = re.findall(r"error=(\d{3})", said)
    problem = f"HTTP {codes[-1]}" if codes else "refused or not reachable"
    after = _RETRY_AFTER.findall(said)
    return Answer(
        problem,
        later=not codes or bool(_LATER.fullmatch(problem)),
        after=float(after[-1]) if after else None,
    )


def _is_sendable(attach: Path) -> bool:
    """A missing or too large file would make the whole message fail at some services."""
    return attach.is_file() and 0 < attach.stat().st_size <= ATTACHMENT_BYTES


def _with_defaults(url: str) -> str:
    if not _DISCORD.match(url):
        return url
    given = {name.lower() for name, _ in parse_qsl(urlsplit(url).query, keep_blank_values=True)}
    added = "&".join(f"{name}={v}" for name, v in DISCORD_DEFAULTS.items() if name not in given)
    return f"{url}{'&' if '?' in url else '?'}{added}" if added else url


def place_of(url: str, number: int, count: int) -> str:
    """A place without its secret: `discord, URL 1 of 2`."""
    scheme, colon, _ = url.partition("://")
    known = colon and re.fullmatch(r"[a-z][a-z+]{0,15}", scheme.lower())
    return f"{scheme.lower() if known else 'no scheme'}, URL {number} of {count}"


def _log() -> logging.Logger | logging.LoggerAdapter[logging.Logger]:
    """The run's own log where there is a run, so that its page shows the warning."""
    try:
        return get_run_logger()
    except MissingContextError:
        return get_logger("notifier")


class _OtherThreads(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.threadName != _THREAD_NAME


@functools.cache
def _hush_libraries() -> None:
    """Keep whole URLs out of our logs: Apprise logs them at debug level, and so does urllib3.

    Apprise's own log of a call holds them too, and the service's answer, which `_answer` reads.
    """
    apprise_log = logging.getLogger("apprise")
    apprise_log.setLevel(logging.DEBUG)
    apprise_log.propagate = False
    apprise_log.addHandler(logging.NullHandler())
    logging.getLogger("urllib3.connectionpool").addFilter(_OtherThreads())
