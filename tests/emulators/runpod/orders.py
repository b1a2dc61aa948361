"""From the body of a create or patch call to an Order: the rules that the schema cannot express.

Each broken rule is a Problem with `rule` set. What is no rule (an unknown GPU, template or volume)
is a plain Problem.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.emulators.runpod.catalog import GPUS, Wish
from tests.emulators.runpod.commands import command_of
from tests.emulators.runpod.pods import Order
from tests.emulators.runpod.problems import Problem

MOST_VARIABLES = 50
_PORT = re.compile(r"(\d{1,5})/(http|tcp)")

# What a template may set, by the names of the API.
TEMPLATE_KEYS = ("image", "args", "disk", "ports", "registry", "mounts", "startSsh", "startJupyter")


def read_order(
    body: Mapping[str, Any],
    templates: Mapping[str, Mapping[str, Any]],
    volumes: Mapping[str, Mapping[str, Any]],
) -> tuple[Order, Wish]:
    """The order and where it may be placed; Problem when it breaks a rule."""
    body = with_template(body, templates)
    if "cpu" in body or "gpu" not in body:
        both = "cpu" in body and "gpu" in body
        text = "not both" if both else "CPU pods are not covered" if "cpu" in body else "none given"
        raise Problem(400, f"exactly one of gpu and cpu: {text}", rule=True)
    if "image" not in body:
        raise Problem(422, "the request is not valid", ["body: image is required"], rule=True)
    gpu, cloud = body["gpu"], body.get("cloud", "SECURE")
    check_container(body)
    if gpu["id"] not in GPUS:
        raise Problem(400, f"unknown GPU type {gpu['id']}")
    if "allowedCudaVersions" in gpu and "minCudaVersion" in gpu:
        raise Problem(400, "allowedCudaVersions excludes minCudaVersion", rule=True)
    centers = frozenset(body.get("dataCenterIds") or ())
    if at := _volume_center(body, cloud, volumes):
        centers = frozenset({at}) if not centers or at in centers else frozenset({"nowhere"})
    wish = Wish(
        count=gpu.get("count", 1),
        cloud=cloud,
        centers=centers,
        cuda=frozenset(gpu.get("allowedCudaVersions") or ()),
        min_cuda=gpu.get("minCudaVersion"),
    )
    order = Order(
        name=body["name"],
        image=body["image"],
        gpu=gpu["id"],
        count=wish.count,
        cloud=cloud,
        args=body.get("args", ""),
        disk=body.get("disk", 50),
        env=dict(body.get("env") or {}),
        ports=list(body.get("ports") or []),
        registry=body.get("registry"),
        mounts=dict(body.get("mounts") or {}),
        ssh=body.get("startSsh", False),
        jupyter=body.get("startJupyter", False),
        global_networking=body.get("globalNetworking", False),
    )
    return order, wish


def apply_patch(
    order: Order, body: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Change the order as a PATCH says; whether its container has to start anew."""
    body = with_template(body, templates)
    check_container(body)
    if "network" in body.get("mounts", {}):
        raise Problem(400, "a network volume is attached at creation only", rule=True)
    for name in ("name", "image", "args", "disk", "ports", "registry"):
        if name in body:
            setattr(order, name, body[name])
    if "env" in body:
        order.env = dict(body["env"])
    if "persistent" in body.get("mounts", {}):
        order.mounts = dict(body["mounts"])
    order.global_networking = body.get("globalNetworking", order.global_networking)
    return bool({"image", "args", "disk", "ports", "env", "registry", "mounts"} & set(body))


def with_template(
    body: Mapping[str, Any], templates: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The body with what its template sets and it does not; env is joined name by name."""
    if "templateId" not in body:
        return dict(body)
    template = templates.get(body["templateId"])
    if template is None:
        raise Problem(404, f"no template {body['templateId']}")
    settings = {name: template[name] for name in TEMPLATE_KEYS if name in template}
    env = {**template.get("env", {}), **body.get("env", {})}
    return {**settings, **body, "env": env}


def check_container(body: Mapping[str, Any]) -> None:
    """Problem for settings of a container that the cloud would not take."""
    mounts = body.get("mounts", {})
    if "persistent" in mounts and mounts.get("network"):
        raise Problem(400, "a persistent mount excludes a network volume", rule=True)
    for port in body.get("ports") or ():
        found = _PORT.fullmatch(port)
        if not found or not 0 < int(found[1]) < 65536:
            raise Problem(422, "the request is not valid", [f"ports: {port}"], rule=True)
    if len(body.get("env") or ()) > MOST_VARIABLES:
        raise Problem(400, f"more than {MOST_VARIABLES} variables", rule=True)
    for name, value in (body.get("env") or {}).items():
        if not name or "=" in name or "\0" in name + value:
            raise Problem(400, f"{name!r} is no variable", rule=True)
    try:
        command_of(body.get("args", ""))
    except ValueError as error:
        # The cloud would take it, and the container would never start.
        raise Problem(400, f"args cannot be split into words: {error}", rule=True) from error


def _volume_center(
    body: Mapping[str, Any], cloud: str, volumes: Mapping[str, Mapping[str, Any]]
) -> str | None:
    for mount in body.get("mounts", {}).get("network", ()):
        if mount["volumeId"] not in volumes:
            raise Problem(404, f"no network volume {mount['volumeId']}")
        if cloud != "SECURE":
            raise Problem(400, "network volumes are for the secure cloud", rule=True)
        return str(volumes[mount["volumeId"]]["dataCenter"])
    return None
