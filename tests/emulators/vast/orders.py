"""What a create call asks for, checked against the limits that Vast documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.emulators.vast.problems import Refused, invalid

LONGEST_IMAGE = 1024
LONGEST_COMMAND = 4096  # onstart, args and args_str together
LONGEST_LABEL = 256
LONGEST_VARIABLE = 256
LONGEST_ENV = 32_768
MOST_PORTS = 64
LEAST_DISK = 8
RUNTYPES = {"ssh", "jupyter", "args", "ssh_proxy", "ssh_direct", "ssh_direc"}
RUNTYPES |= {"jupyter_proxy", "jupyter_direct", "jupyter_direc"}
_PORT = re.compile(r"-p (\d+):(\d+)(/(?:tcp|udp))?")


@dataclass
class Order:
    """A create call; `bid` in USD per hour for the whole machine, None for on demand."""

    image: str
    disk: float = 10.0
    env: dict[str, str] = field(default_factory=dict)
    ports: dict[str, str] = field(default_factory=dict)
    bid: float | None = None
    label: str | None = None
    onstart: str = ""
    args: list[str] = field(default_factory=list)
    runtype: str = "ssh"
    user: str | None = None
    cancel_unavail: bool = False
    target_state: str = "running"

    @property
    def command(self) -> list[str]:
        """The main process: onstart as the entrypoint of `args`, else onstart and then idle."""
        if self.runtype == "args":
            return [*([self.onstart] if self.onstart else []), *self.args] or ["sleep", "infinity"]
        return ["/bin/sh", "-c", f"{self.onstart}\nexec sleep infinity"]

    @property
    def extra_env(self) -> list[list[str]]:
        """As an instance shows it."""
        pairs = {**self.env, **{f"-p {inner}:{inner}": "1" for inner in self.ports}}
        return [[name, value] for name, value in pairs.items()]


def read_order(body: Mapping[str, Any], templates: Mapping[str, Any]) -> Order:
    """The order of a body; Refused 400 for what Vast does not take."""
    given = {name: value for name, value in body.items() if value is not None}
    template = templates.get(given.get("template_hash_id", ""), {})
    given = {**template, **given, "env": _env(template) | _env(given)}
    image = given.get("image")
    if not image:
        raise Refused(400, "server_error", "Something went wrong on the server", rule=True)
    if len(image) > LONGEST_IMAGE:
        raise invalid("image is too long")
    disk = float(given.get("disk", 10.0))
    if disk < LEAST_DISK:
        raise invalid(f"disk must be at least {LEAST_DISK}")
    if len(str(given.get("label", ""))) > LONGEST_LABEL:
        raise invalid("label is too long")
    args = [str(word) for word in given.get("args", [])]
    onstart = str(given.get("onstart", ""))
    if len(onstart) + sum(map(len, args)) + len(str(given.get("args_str", ""))) > LONGEST_COMMAND:
        raise invalid(f"args, args_str and onstart exceed {LONGEST_COMMAND}")
    runtype = str(given.get("runtype") or ("args" if args else "ssh"))
    if set(runtype.split()) - RUNTYPES:
        raise invalid(f"runtype {runtype!r}")
    if runtype == "args" and " " in onstart:
        raise invalid("onstart of runtype args is one program")
    if len(str(given.get("image_login", "")).split()) not in (0, 5):
        raise invalid("image_login: -u user -p password server")
    ports, env = _split(given["env"])
    return Order(
        image=image,
        disk=disk,
        env=env,
        ports=ports,
        bid=_bid(given),
        label=given.get("label"),
        onstart=onstart,
        args=args,
        runtype=runtype,
        user=given.get("user"),
        cancel_unavail=bool(given.get("cancel_unavail", False)),
        target_state=str(given.get("target_state", "running")),
    )


def _env(given: Mapping[str, Any]) -> dict[str, Any]:
    env = given.get("env") or {}
    if not isinstance(env, dict):
        raise invalid("env must be an object")
    return dict(env)


def _bid(given: Mapping[str, Any]) -> float | None:
    price = given.get("price")
    if price is None:
        return None
    if not 0.001 <= float(price) <= 128:
        msg = "error 400/3467: Please set a bid price between 0.001 and 128."
        raise Refused(400, "invalid_price", msg, rule=True)
    return float(price)


def _split(env: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Ports (inner to kind) and variables."""
    ports: dict[str, str] = {}
    variables: dict[str, str] = {}
    for name, value in env.items():
        if not isinstance(value, str):
            raise invalid(f"env {name} must be a string")
        if len(name) + len(value) > LONGEST_VARIABLE:
            raise invalid(f"env {name} exceeds {LONGEST_VARIABLE} characters")
        if port := _PORT.fullmatch(name):
            ports[port[2]] = (port[3] or "/tcp").removeprefix("/")
        elif name.startswith("-"):
            continue  # an option of docker's
        else:
            variables[name] = value
    if sum(len(name) + len(value) for name, value in env.items()) > LONGEST_ENV:
        raise invalid("env is too long")
    if len(ports) > MOST_PORTS:
        raise invalid("too many ports")
    return ports, variables
