"""`axolotl-runner notify`: does a notice reach the people it is for?"""

from __future__ import annotations

import os
from queue import Empty

from blocks.notifier import Answer, Notifier, begin, place_of
from runner.errors import ConfigError
from runner.notice import Notice
from runner.secrets import learn

ANSWERS_WITHIN = 30.0
TEST = Notice(
    kind="started",
    title="👋 axolotl-runner: a test",
    body="Notices of runs will arrive here.",
    notify_type="info",
)


def send_test(block: str | None, *, within: float = ANSWERS_WITHIN) -> int:
    """Send a test notice to each place and print which took it; 0 when all did, else 1.

    ConfigError when there is no place, or the block can't be loaded.
    """
    urls = _urls(block)
    learn({f"notice_url_{number}": url for number, url in enumerate(urls, 1)})
    answers = [begin(url, TEST) for url in urls]
    failed = 0
    for number, (url, queue) in enumerate(zip(urls, answers, strict=True), 1):
        try:
            answer = queue.get(timeout=within)
        except Empty:
            answer = Answer("no answer in time")
        failed += bool(answer.problem)
        print(f"{place_of(url, number, len(urls))}: {answer.problem or 'delivered'}")
    return 1 if failed else 0


def _urls(block: str | None) -> list[str]:
    if block is None:
        urls = os.environ.get("AXR_NOTIFY_URLS", "").split()
        if not urls:
            raise ConfigError("nobody is told: AXR_NOTIFY_URLS is not set, and no --block is named")
        return urls
    try:
        notifier = Notifier.load(block, _sync=True)  # type: ignore[call-arg]
    except Exception as error:  # a border: no such block, server away, foreign content
        raise ConfigError(
            f"the block {block!r} of type Axolotl Notifier can't be loaded: {type(error).__name__}"
        ) from error
    urls = [url.get_secret_value() for url in notifier.urls]  # type: ignore[union-attr]
    if not urls:
        raise ConfigError(f"the block {block!r} holds no URL")
    return urls
