"""Vast through its SDK; knows nothing of runs.

Every answer becomes a value or one error of `runner.errors` (see `refusals`). By itself the SDK
sends any call again after a timeout or a 5xx, which would rent a second machine, and after 0.15 s
when Vast wants it some seconds later: so ours sends once, and the pauses are made here. It also
computes with fields that an instance may lack, so one instance is read by its plain HTTP client,
and all of them by its paged list.

Vast wants a least time between calls of a kind; calls of this process keep it, in any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import requests

from blocks.vast.refusals import Json, detail, is_missing, left_behind, refusal
from runner.errors import ConfigError, CreateFailed, TryAgain

if TYPE_CHECKING:
    from vastai import VastAI

BASE_URL = "https://console.vast.ai"
TIMEOUT = 60.0  # of one call, seconds
PAGE = 25  # the most that Vast gives
MOST_PAGES = 200
MOST_OFFERS = 64
# Seconds between calls, as published, and a little more for the way.
GAPS = {"create": 4.6, "destroy": 3.1, "get": 2.1, "list": 1.1, "change": 1.1, "search": 6.1}
LOG_LINES = 500
TRIES = 4  # of a call that Vast wants later

T = TypeVar("T")


class VastClient:
    """One account's instances."""

    def __init__(
        self,
        api_key: str,
        base_url: str = BASE_URL,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._key = api_key
        self._clock = clock
        self._sleep = sleep
        self._next: dict[str, float] = {}
        self._lock = threading.Lock()

    @cached_property
    def _sdk(self) -> VastAI:
        from vastai import VastAI  # nearly a second, and no run elsewhere needs it

        made = VastAI(api_key=self._key, server_url=self.base_url, retry=1)
        made.client.timeout = TIMEOUT
        return made

    def offers(self, query: Mapping[str, Any], *, bid: bool, storage_gb: float) -> list[Json]:
        """Offers, the cheapest first; prices are with that much storage, for a bid the least."""
        kind = "bid" if bid else "on-demand"

        def search() -> list[Json]:
            return list(
                self._sdk.search_offers(
                    dict(query), type=kind, order="dph_total", limit=MOST_OFFERS, storage=storage_gb
                )
            )

        return self._called("search", search)

    def create(self, offer: int, order: Mapping[str, Any]) -> str:
        """Rent an offer; the id of the instance.

        CreateFailed when that is not known to have failed, to be looked up by label; or, with
        `pod_id`, when the call failed but made that instance: its cause is why it failed.
        """

        def create() -> Json:
            return dict(self._sdk.create_instance(id=offer, **order))

        try:
            made = self._called("create", create)
        except TryAgain as unclear:
            if unclear.after is not None or _not_sent(unclear.__cause__):  # 429 has made nothing
                raise
            raise CreateFailed(f"the create call failed: {unclear}") from unclear
        contract = left_behind(made)
        if contract is None:
            raise CreateFailed("Vast's answer to the create call names no instance")
        return contract

    def instances(self) -> list[Json]:
        """All instances of the account. Raises rather than returning a part of them."""
        return [_stripped(each) for page in self._pages() for each in page.get("instances") or []]

    def instance(self, number: str) -> Json | None:
        """One instance, None when this call does not find it (a new one may not be seen yet)."""

        def get() -> Json | None:
            answer = self._sdk.client.get(f"/instances/{int(number)}/", {"owner": "me"})
            if is_missing(answer.status_code, _body(answer)):
                return None
            answer.raise_for_status()
            found = answer.json()
            # Without `instances` it is no answer to this question, and so no absence.
            return None if found["instances"] is None else _stripped(found["instances"])

        return self._called("get", get)

    def destroy(self, number: str) -> None:
        """End an instance; one that is not there is no error. What it took to is only seen in a
        list.
        """

        def destroy() -> None:
            answer = self._sdk.client.delete(f"/instances/{int(number)}/", json_data={})
            body = _body(answer)
            if is_missing(answer.status_code, body):
                return
            answer.raise_for_status()
            if isinstance(body, Mapping) and body.get("success") is False:
                raise TryAgain(f"Vast does not destroy the instance {number}: {detail(body)}")

        self._called("destroy", destroy)

    def stop(self, number: str) -> None:
        """Stop an instance; its disk is kept and paid for."""
        self._called("change", lambda: self._sdk.stop_instance(int(number)))

    def start(self, number: str) -> None:
        """Start a stopped instance, which may wait for its GPUs for ever."""
        self._called("change", lambda: self._sdk.start_instance(int(number)))

    def label(self, number: str, label: str) -> None:
        """Name an instance."""
        self._called("change", lambda: self._sdk.label_instance(int(number), label))

    def log(self, number: str, *, host: bool = False) -> str:
        """The last lines of an instance's container, or of what its host did with it.

        Vast uploads them first, and cuts each at some hundred characters; "" when that takes long.
        """

        def ask() -> str:
            try:
                found = self._sdk.logs(int(number), tail=str(LOG_LINES), daemon_logs=host)
            except TimeoutError:
                return ""
            return found if isinstance(found, str) else ""

        return self._called("log", ask)

    def credit(self) -> float:
        """USD that the account can still spend."""
        return float(self._called("user", lambda: self._sdk.show_user())["credit"])

    def _pages(self) -> Iterator[Json]:
        asked: Json = {"order_by": [{"col": "id", "dir": "asc"}], "limit": PAGE}
        for _ in range(MOST_PAGES):
            page = self._called("list", lambda: dict(self._sdk.show_instances_v1(asked)))
            if not isinstance(page.get("instances"), list):
                raise TryAgain("Vast's list of instances can't be read")
            yield page
            token = page.get("next_token")
            if not token:
                return
            if token == asked.get("after_token"):
                break
            asked["after_token"] = token
        raise TryAgain("Vast's list of instances does not end")

    def _called(self, what: str, call: Callable[[], T]) -> T:
        """What the call returns, after the least pause and, when Vast wants it later, later."""
        for left in reversed(range(TRIES)):
            self._wait_for_turn(what)
            try:
                return _checked(what, call())
            except requests.HTTPError as refused:
                answer = refused.response
                body = _body(answer)
                why = refusal(what, answer.status_code, body, answer.headers)
                if what == "create" and (made := left_behind(body)):
                    raise CreateFailed(str(why), pod_id=made) from why
                if isinstance(why, TryAgain) and why.after is not None and left:
                    self._sleep(why.after)
                    continue
                raise why from None
            except requests.RequestException as lost:
                raise TryAgain(f"Vast can't be reached: {type(lost).__name__}") from lost
            except (ValueError, KeyError, TypeError, AttributeError) as strange:
                raise TryAgain(f"Vast's answer can't be read ({what})") from strange
        raise AssertionError("the last try returns or raises")

    def _wait_for_turn(self, what: str) -> None:
        with self._lock:
            now = self._clock()
            turn = max(now, self._next.get(what, now))
            self._next[what] = turn + GAPS.get(what, 0.0)
        if turn > now:
            self._sleep(turn - now)


def _checked(what: str, found: T) -> T:
    """The answer, unless it is a refusal with HTTP 200."""
    if isinstance(found, Mapping) and found.get("success") is False:
        why = refusal(what, 400, found)
        if what == "create" and (made := left_behind(found)):
            raise CreateFailed(str(why), pod_id=made) from why
        if isinstance(why, ConfigError):  # it gave no reason that we know: nothing is decided
            raise TryAgain(f"Vast says success: false ({detail(found)})")
        raise why
    return found


def _not_sent(lost: BaseException | None) -> bool:
    """Whether there was no connection at all, so that Vast has not seen the call."""
    return "NewConnectionError" in repr(lost) or isinstance(lost, requests.ConnectTimeout)


def _body(answer: requests.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _stripped(found: Json) -> Json:
    """Without the blanks that some of its texts carry."""
    return {key: value.strip() if isinstance(value, str) else value for key, value in found.items()}
