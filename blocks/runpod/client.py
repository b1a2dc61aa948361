"""RunPod's REST v2 over HTTP; knows nothing of runs.

Every answer becomes a value or one error of `runner.errors`, named for what to do:

    401, 403   KeyRefused      never asked again
    402        OutOfFunds      never asked again
    400        NoCapacity when the text speaks of machines, else ConfigError
    422        ConfigError     we sent what the specification does not know
    404        None            the pod is not there, as far as this call sees
    429        TryAgain        after `Retry-After` seconds
    5xx, none  TryAgain        of a create call: CreateFailed, since a pod may have been made

What was sent is never part of a message: it holds secrets.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import httpx

from runner.errors import (
    ConfigError,
    CreateFailed,
    KeyRefused,
    NoCapacity,
    OutOfFunds,
    TryAgain,
)

BASE_URL = "https://api.runpod.io/v2"
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
# Cloudflare in front of the API refuses the agent names of bare HTTP libraries.
AGENT = "axolotl-runner"
DETAIL_LENGTH = 300
MOST_PAGES = 100
LOG_LINES = 500
LOG_SILENCE = 2.0  # seconds
LOG_WITHIN = 6.0
# A 400 of a create call says in words alone that no machine is free, and not always the true words:
# "enough disk space" and "this machine" were seen when there was no machine at all.
CAPACITY_WORDS = (
    "no longer any instances available",
    "no instances available",
    "no instances currently available",
    "does not have the resources",
    "not enough free gpus",
    "no available",
    "out of stock",
    "insufficient capacity",
    "something went wrong",
)

Json = dict[str, Any]


class RunPodClient:
    """One account's pods. Use `close` or let it go: connections are kept between calls."""

    def __init__(
        self,
        api_key: str,
        base_url: str = BASE_URL,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self.base_url}/",
            headers={"Authorization": f"Bearer {api_key}", "User-Agent": AGENT},
            timeout=TIMEOUT,
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def gpus(self, *, tier: str, count: int, min_cuda: str | None = None) -> list[Json]:
        """The catalog's GPUs with prices and availability for `count` of them in a cloud tier."""
        query = {"include": "AVAILABILITY", "product": "POD", "count": str(count), "cloud": tier}
        if min_cuda:
            query["minCudaVersion"] = min_cuda
        return list(self._json("GET", "catalog/gpus", params=query)["gpus"])

    def pods(self) -> list[Json]:
        """All pods of the account. Raises rather than returning a part of them."""
        return [pod for page in self._pages("pods") for pod in page["pods"]]

    def pod(self, pod_id: str) -> Json | None:
        """One pod, None when this call does not find it (a new one may not be seen yet)."""
        found = self._send("GET", f"pods/{_part(pod_id)}")
        return None if found.status_code == 404 else _readable(found)

    def create(self, body: Mapping[str, Any]) -> Json:
        """Make a pod. CreateFailed when that is not known to have failed: look it up by name."""
        try:
            answer = self._http.post("pods", json=dict(body))
        except httpx.ConnectError as away:  # nothing was sent
            raise TryAgain(f"RunPod can't be reached: {_kind(away)}") from away
        except httpx.HTTPError as lost:
            raise CreateFailed(f"RunPod did not answer the create call: {_kind(lost)}") from lost
        if answer.status_code >= 500:
            raise CreateFailed(f"RunPod answered the create call with {answer.status_code}")
        if answer.status_code == 404:  # a volume, template or registry that is not there
            raise ConfigError(f"RunPod does not know what was asked for: {_detail(answer)}")
        _check(answer)
        try:
            return _object(answer)
        except ValueError as strange:
            raise CreateFailed("RunPod's answer to the create call can't be read") from strange

    def act(self, pod_id: str, action: str) -> bool:
        """start, stop or restart; False when the pod's state does not allow it (409) or it is gone
        (404).
        """
        answer = self._send("POST", f"pods/{_part(pod_id)}/action", json={"action": action})
        return answer.status_code not in (404, 409)

    def delete(self, pod_id: str) -> None:
        """End a pod; one that is not there is no error. What it took to is only seen in a list."""
        self._send("DELETE", f"pods/{_part(pod_id)}")

    def log(self, pod_id: str) -> list[str]:
        """The last lines of container and host, empty for a pod that is not there.

        The stream never ends: what was said before comes at once, so silence ends the reading.
        """
        lines: list[str] = []
        until = time.monotonic() + LOG_WITHIN
        query = {"tail": str(LOG_LINES)}
        try:
            with self._http.stream(
                "GET", f"pods/{_part(pod_id)}/logs", params=query, timeout=LOG_SILENCE
            ) as answer:
                if answer.status_code == 404:
                    return []
                if not answer.is_success:
                    answer.read()
                    _check(answer)
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        lines.append(str(json.loads(line.removeprefix("data:"))["line"]))
                    if len(lines) >= LOG_LINES or time.monotonic() > until:
                        break
        except httpx.ReadTimeout:
            return lines
        except httpx.HTTPError as lost:
            raise TryAgain(f"RunPod can't be reached: {_kind(lost)}") from lost
        except (ValueError, LookupError, TypeError) as strange:
            raise TryAgain("RunPod's log can't be read") from strange
        return lines

    def billed(self, pod_id: str) -> float:
        """USD billed for this pod so far; RunPod books every few minutes."""
        query = {"podId": pod_id, "bucketSize": "hour"}
        found = self._json("GET", "billing/pods", params=query)
        return float(sum(record["totalAmount"] for record in found["records"]))

    def volume(self, volume_id: str) -> Json | None:
        """A network volume with its data center, None when the account does not have it."""
        found = self._send("GET", f"network-volumes/{_part(volume_id)}")
        return None if found.status_code == 404 else _readable(found)

    def _pages(self, path: str) -> Iterator[Json]:
        """The pages of a list: one without `pagination` is the only one."""
        query: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            page = self._json("GET", path, params=query)
            yield page
            more = page.get("pagination") or {}
            if not more.get("hasNextPage"):
                return
            if not more.get("nextCursor") or more["nextCursor"] == query.get("cursor"):
                break
            query = {"cursor": str(more["nextCursor"])}
        raise TryAgain(f"RunPod's list of {path} does not end")

    def _json(self, method: str, path: str, **given: Any) -> Json:
        answer = self._send(method, path, **given)
        if answer.status_code == 404:
            raise ConfigError(f"RunPod has no {path}: {_detail(answer)}")
        return _readable(answer)

    def _send(self, method: str, path: str, **given: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **given)
        except httpx.HTTPError as lost:
            raise TryAgain(f"RunPod can't be reached: {_kind(lost)}") from lost
        if answer.status_code not in (404, 409):
            _check(answer)
        return answer


def _check(answer: httpx.Response) -> None:
    status = answer.status_code
    if answer.is_success:
        return
    detail = _detail(answer)
    if status in (401, 403):
        raise KeyRefused(
            f"RunPod refuses the API key ({status}: {detail}); set RUNPOD_API_KEY to one that may "
            "create and delete pods"
        )
    if status == 402:
        raise OutOfFunds(f"RunPod refuses for want of money: {detail}")
    if status == 429:
        raise TryAgain("RunPod asks for a pause (429)", after=_retry_after(answer))
    if status == 410:
        raise ConfigError(f"RunPod has retired this part of its API: {detail}")
    if status == 400 and any(words in detail.lower() for words in CAPACITY_WORDS):
        raise NoCapacity(detail)
    if 400 <= status < 500:
        raise ConfigError(f"RunPod refuses what was asked for ({status}): {detail}")
    raise TryAgain(f"RunPod answers {status}")


def _detail(answer: httpx.Response) -> str:
    """The problem in RunPod's words, on one line."""
    try:
        problem = _object(answer)
    except ValueError:
        return answer.reason_phrase or "no explanation"
    words = [str(problem.get("detail") or problem.get("title") or "no explanation")]
    words += [str(error) for error in problem.get("errors") or []]
    return " ".join("; ".join(words).split())[:DETAIL_LENGTH]


def _object(answer: httpx.Response) -> Json:
    value = answer.json()
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def _readable(answer: httpx.Response) -> Json:
    try:
        return _object(answer)
    except ValueError as strange:
        raise TryAgain("RunPod's answer can't be read") from strange


def _retry_after(answer: httpx.Response) -> float:
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "5")))
    except ValueError:
        return 5.0


def _kind(error: Exception) -> str:
    """The error without its text, which may hold the address."""
    return type(error).__name__


def _part(text: str) -> str:
    return quote(text, safe="")
