"""How GraphQL writes what REST v2 writes otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.emulators.clock import write_time
from tests.emulators.runpod.catalog import GPUS, Catalog, Gpu, Wish
from tests.emulators.runpod.pods import PUBLIC_IP, Pod


def pod(pod: Pod, view: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's fields, from its `view` of REST v2."""
    order = pod.order
    runtime = view["runtime"] or None
    empty = pod.empty_machine
    host = {"podHostId": f"{pod.id}-64411e", "gpuDisplayName": GPUS[order.gpu].name}
    return {
        **view,
        "imageName": order.image,
        "dockerArgs": order.args,
        "dockerId": None,
        "env": [f"{name}={value}" for name, value in order.env.items()],
        "ports": ",".join(order.ports),
        "gpuCount": pod.count,
        "costPerHr": view["cost"],
        # RUNNING from the start; only `runtime` tells.
        "desiredStatus": "EXITED" if pod.status == "EXITED" else "RUNNING",
        "lastStatusChange": write_time(pod.boot_from),
        "containerDiskInGb": order.disk,
        "volumeInGb": order.volume_gb,
        "volumeMountPath": order.mount_path,
        "podType": "RESERVED",
        "uptimeSeconds": 0,
        "memoryInGb": 64,
        "vcpuCount": 8,
        "machineId": None if empty else f"machine-{pod.center.lower()}",
        "machine": {} if empty else host,
        "runtime": None if runtime is None else _runtime(runtime),
    }


def gpu(gpu: Gpu, catalog: Catalog) -> dict[str, Any]:
    """A GPU type's fields; `lowestPrice` is a resolver."""

    def lowest(info: Any, input: dict[str, Any] | None = None) -> dict[str, Any]:
        asked = input or {}
        cloud = "COMMUNITY" if asked.get("secureCloud") is False else "SECURE"
        row = catalog.gpu_row(gpu, Wish(asked.get("gpuCount") or 1, cloud))
        level = None if row["availability"] == "NONE" else row["availability"].title()
        price = None if level is None else float(gpu.price(cloud) or 0)
        return {"stockStatus": level, "uninterruptablePrice": price, "gpuTypeId": gpu.id}

    return {
        "id": gpu.id,
        "displayName": gpu.name,
        "manufacturer": gpu.manufacturer,
        "memoryInGb": gpu.memory,
        "maxGpuCount": 8,
        "secureCloud": gpu.secure is not None,
        "communityCloud": gpu.community is not None,
        "securePrice": float(gpu.secure or 0),
        "communityPrice": float(gpu.community or 0),
        "lowestPrice": lowest,
    }


def v2_body(given: Mapping[str, Any], cloud: str) -> dict[str, Any]:
    """The body of REST v2 for a PodFindAndDeployOnDemandInput."""
    body: dict[str, Any] = {
        "name": given["name"],
        "gpu": {"id": given.get("gpuTypeId", ""), "count": given.get("gpuCount") or 1},
        "cloud": cloud,
        "env": {each["key"]: each["value"] for each in given.get("env") or []},
        "ports": [port for port in (given.get("ports") or "").split(",") if port],
        "disk": given.get("containerDiskInGb") or 10,
        "startSsh": bool(given.get("startSsh")),
    }
    for name in ("allowedCudaVersions", "minCudaVersion"):
        if given.get(name):
            body["gpu"][name] = given[name]
    names = {"imageName": "image", "dockerArgs": "args", "templateId": "templateId"}
    body |= {ours: given[name] for name, ours in names.items() if given.get(name)}
    if given.get("dataCenterId"):
        body["dataCenterIds"] = [given["dataCenterId"]]
    path = given.get("volumeMountPath") or "/runpod-volume"
    if given.get("networkVolumeId"):
        body["mounts"] = {"network": [{"volumeId": given["networkVolumeId"], "path": path}]}
    elif given.get("volumeInGb"):
        body["mounts"] = {"persistent": {"size": given["volumeInGb"], "path": path}}
    return body


def _runtime(shown: Mapping[str, Any]) -> dict[str, Any]:
    ports = [
        {
            "ip": port["ip"] or PUBLIC_IP,
            "isIpPublic": port["ip"] is not None,
            "privatePort": port["private"],
            "publicPort": port["public"],
            "type": port["type"],
        }
        for port in shown["ports"]
    ]
    gpus = [
        {"id": str(number), "gpuUtilPercent": gpu["util"], "memoryUtilPercent": gpu["memoryUtil"]}
        for number, gpu in enumerate(shown.get("gpus", []))
    ]
    use = None
    if "cpu" in shown:
        use = {"cpuPercent": shown["cpu"]["util"], "memoryPercent": shown["memory"]["util"]}
    return {"uptimeInSeconds": shown["uptime"], "ports": ports, "gpus": gpus, "container": use}
