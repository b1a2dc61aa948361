"""What the SDK's create call is given, from an order and a candidate.

The container's command must fit into 4096 characters, each variable into 256 and all into 32768:
what does not fit is refused here, in words, before anything is rented.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping
from typing import Any

from blocks.cloud import PodOrder
from blocks.image import image_of
from blocks.vast.offers import Candidate, disk_gb
from runner.errors import ConfigError

LONGEST_COMMAND = 4096
LONGEST_VARIABLE = 256
LONGEST_ENV = 32_768
MOST_PORTS = 64


def create_call(order: PodOrder, candidate: Candidate, api: str) -> dict[str, Any]:
    """The arguments of the SDK's `create_instance`, without the offer. ConfigError for what Vast
    can't do.

    `api` is the address at which the instance ends itself, with the key that Vast gives it.
    """
    if order.network_volume:
        raise ConfigError(
            "Vast has no volumes that pods of several machines can mount: leave network_volume out "
            "and set checkpoint_store to hf:// or s3://"
        )
    env = {**order.environment, "AXR_CLOUD_API": api}
    _check_variables(env)
    shell, argument = command(order.start_script)
    call: dict[str, Any] = {
        "disk": disk_gb(order),
        "env": {**env, **_ports(order)},
        "label": order.name,
        "price": candidate.bid,
        # This form is known to run a plain command: `onstart` is the entrypoint of `args`.
        "runtype": "args",
        "onstart_cmd": shell,
        "args": ["-c", argument],
        "user": "root",
        # Else a bid that does not win leaves a stopped instance that waits, and costs its disk.
        "cancel_unavail": True,
    }
    image = image_of(order)
    if image:
        call["image"] = image
    if order.template:
        call["template_hash"] = order.template
    if order.registry:
        call["login"] = _login(order.registry)
    return call


def command(script: str) -> tuple[str, str]:
    """A shell and what it runs: the script, packed, since Vast takes 4096 characters at most."""
    packed = base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
    shell, argument = "/bin/sh", f'exec bash -c "$(echo {packed} | base64 -d | gunzip)"'
    length = len(shell) + len("-c") + len(argument)
    if length > LONGEST_COMMAND:
        raise ConfigError(
            f"the start script of {len(script)} characters is {length} when packed, Vast takes "
            f"{LONGEST_COMMAND}"
        )
    return shell, argument


def _check_variables(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if len(name) + len(value) > LONGEST_VARIABLE:
            raise ConfigError(
                f"Vast takes variables of {LONGEST_VARIABLE} characters with their name, {name} "
                f"has {len(name) + len(value)}: shorten it in runner.env"
            )
    if sum(len(name) + len(value) for name, value in env.items()) > LONGEST_ENV:
        raise ConfigError(f"Vast takes {LONGEST_ENV} characters of variables: shorten runner.env")


def _ports(order: PodOrder) -> dict[str, str]:
    """Ports are options of docker's among the variables."""
    numbers = [port.partition("/")[0] for port in order.ports]
    if len(numbers) > MOST_PORTS:
        raise ConfigError(f"Vast opens {MOST_PORTS} ports at most: shorten runner.ports")
    return {f"-p {number}:{number}": "1" for number in numbers}


def _login(registry: str) -> str:
    words = registry.split()
    if len(words) != 5 or words[0] != "-u" or words[2] != "-p":
        raise ConfigError(
            "runner.registry for Vast is the login itself, `-u USER -p TOKEN SERVER`, without "
            "blanks in any of the three"
        )
    return registry
