"""The routes of REST v2. Each takes a Call of someone who may, and returns an Answer."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

from tests.emulators.calls import EVENTS, Answer, Call
from tests.emulators.runpod.account import Account
from tests.emulators.runpod.billing_view import pod_billing
from tests.emulators.runpod.catalog import CENTERS, GPUS, Center, Wish
from tests.emulators.runpod.problems import Problem

_NEED_INCLUDE = ("product", "count", "cloud", "countryCodes", "cudaVersions", "minCudaVersion")


def route(account: Account, call: Call) -> Answer:
    """The answer of the right method; Problem 404 or 405 when there is none."""
    allowed = []
    for method, pattern, handler in _ROUTES:
        if found := pattern.fullmatch(call.path):
            if method == call.method:
                return handler(account, call, *found.groups())
            allowed.append(method)
    raise Problem(405 if allowed else 404, f"{call.method} {call.path} is not covered")


def _gpus(account: Account, call: Call) -> Answer:
    wish = _wish(call)
    catalog = account.catalog()
    rows = [
        catalog.gpu_row(gpu, wish)
        for gpu in GPUS.values()
        if not (wish and wish.countries) or _is_in(gpu.centers, wish.countries)
    ]
    return Answer(200, {"gpus": rows})


def _gpu(account: Account, call: Call, gpu_id: str) -> Answer:
    if gpu_id not in GPUS:
        raise Problem(404, "GPU type not found")
    return Answer(200, account.catalog().gpu_row(GPUS[gpu_id], _wish(call)))


def _centers(account: Account, call: Call) -> Answer:
    regions = set(filter(None, call.query.get("regions", "").split(",")))
    chosen = [each for each in CENTERS.values() if not regions or each.region in regions]
    return Answer(200, {"dataCenters": [_center_row(account, call, each) for each in chosen]})


def _center(account: Account, call: Call, center_id: str) -> Answer:
    if center_id not in CENTERS:
        raise Problem(404, "data center not found")
    return Answer(200, _center_row(account, call, CENTERS[center_id]))


def _create(account: Account, call: Call) -> Answer:
    return Answer(201, account.view(account.create(call.body)))


def _list(account: Account, call: Call) -> Answer:
    pods = [account.view(pod) for pod in account.visible()]
    if not (most := account.faults["pages"]):
        return Answer(200, {"pods": pods})
    start = int(call.query.get("cursor") or 0)
    size = min(most, int(call.query.get("limit") or most))
    more = start + size < len(pods)
    pagination = {"hasNextPage": more, "nextCursor": str(start + size) if more else None}
    return Answer(200, {"pods": pods[start : start + size], "pagination": pagination})


def _get(account: Account, call: Call, pod_id: str) -> Answer:
    return Answer(200, account.view(account.find(pod_id)))


def _patch(account: Account, call: Call, pod_id: str) -> Answer:
    return Answer(200, account.view(account.patch(pod_id, call.body)))


def _delete(account: Account, call: Call, pod_id: str) -> Answer:
    account.terminate(account.find(pod_id), call.caller or "account")
    return Answer(204, media=None)


def _action(account: Account, call: Call, pod_id: str) -> Answer:
    pod = account.act(pod_id, call.body["action"], call.caller or "account")
    return Answer(204, media=None) if pod is None else Answer(200, account.view(pod))


def _logs(account: Account, call: Call, pod_id: str) -> Answer:
    pod = account.find(pod_id)
    tail = int(call.query.get("tail", 100))
    source, since = call.query.get("source"), call.query.get("since")
    try:
        events = pod.log.follow(source, tail, since, call.headers.get("last-event-id"))
    except ValueError as error:
        raise Problem(422, "the request is not valid", [str(error)], rule=True) from error
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return Answer(200, media=EVENTS, stream=events, headers=headers)


def _billing(account: Account, call: Call) -> Answer:
    now, lag = account.clock.now(), account.faults["billing_lag"]
    return Answer(200, pod_billing(account.meters(), call.query, now, lag))


def _volumes(account: Account, call: Call) -> Answer:
    return Answer(200, {"networkVolumes": list(account.volumes.values())})


def _new_volume(account: Account, call: Call) -> Answer:
    if call.body["dataCenter"] not in CENTERS:
        raise Problem(400, f"unknown data center {call.body['dataCenter']}")
    volume = {"id": secrets.token_hex(5), "type": "STANDARD", **call.body}
    account.host.folders.volume("", volume["id"]).mkdir()
    account.volumes[volume["id"]] = volume
    return Answer(201, volume)


def _volume(account: Account, call: Call, volume_id: str) -> Answer:
    volume = account.volumes.get(volume_id)
    if volume is None:
        raise Problem(404, "network volume not found")
    if call.method == "DELETE":
        if any(pod.order.volume_id == volume_id for pod in account.pods.values()):
            raise Problem(400, "the network volume is in use")
        del account.volumes[volume_id]
        return Answer(204, media=None)
    if call.method == "PATCH":
        if call.body.get("size", volume["size"]) < volume["size"]:
            raise Problem(400, "a network volume does not shrink", rule=True)
        volume.update(call.body)
    return Answer(200, volume)


def _ssh_keys(account: Account, call: Call) -> Answer:
    if call.method == "PUT":
        account.host.ssh_keys = list(call.body["keys"])
    return Answer(200, {"keys": account.host.ssh_keys})


def _wish(call: Call) -> Wish | None:
    """What the availability is asked for, None when it is not."""
    query = call.query
    if query.get("include") != "AVAILABILITY":
        if given := [name for name in _NEED_INCLUDE if name in query]:
            raise Problem(400, f"{given[0]} needs include=AVAILABILITY", rule=True)
        return None
    if "product" not in query:
        raise Problem(400, "include=AVAILABILITY needs product", rule=True)
    if "cudaVersions" in query and "minCudaVersion" in query:
        raise Problem(400, "cudaVersions excludes minCudaVersion", rule=True)
    return Wish(
        count=int(query.get("count", 1)),
        cloud=query.get("cloud", "SECURE"),
        countries=frozenset(filter(None, query.get("countryCodes", "").split(","))),
        cuda=frozenset(filter(None, query.get("cudaVersions", "").split(","))),
        min_cuda=query.get("minCudaVersion"),
    )


def _center_row(account: Account, call: Call, center: Center) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": center.id,
        "name": center.name,
        "region": center.region,
        "globalNetwork": center.country == "US",
        "networkVolumeTypes": ["STANDARD"],
        "compliance": [],
    }
    if "GPU_AVAILABILITY" in call.query.get("include", ""):
        catalog, wish = account.catalog(), Wish(centers=frozenset({center.id}))
        row["gpuAvailability"] = [
            {
                "id": gpu.id,
                "name": gpu.name,
                "availability": catalog.gpu_row(gpu, wish)["availability"],
            }
            for gpu in GPUS.values()
            if center.id in gpu.centers
        ]
    return row


def _is_in(centers: tuple[str, ...], countries: frozenset[str]) -> bool:
    return any(CENTERS[center].country in countries for center in centers)


_ROUTES: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
    (method, re.compile(path), handler)
    for methods, path, handler in (
        ("GET", "/v2/catalog/gpus", _gpus),
        ("GET", "/v2/catalog/gpus/([^/]+)", _gpu),
        ("GET", "/v2/catalog/datacenters", _centers),
        ("GET", "/v2/catalog/datacenters/([^/]+)", _center),
        ("POST", "/v2/pods", _create),
        ("GET", "/v2/pods", _list),
        ("GET", "/v2/pods/([^/]+)", _get),
        ("PATCH", "/v2/pods/([^/]+)", _patch),
        ("DELETE", "/v2/pods/([^/]+)", _delete),
        ("POST", "/v2/pods/([^/]+)/action", _action),
        ("GET", "/v2/pods/([^/]+)/logs", _logs),
        ("GET", "/v2/billing/pods", _billing),
        ("GET", "/v2/network-volumes", _volumes),
        ("POST", "/v2/network-volumes", _new_volume),
        ("GET PATCH DELETE", "/v2/network-volumes/([^/]+)", _volume),
        ("GET PUT", "/v2/account/ssh-keys", _ssh_keys),
    )
    for method in methods.split()
]
