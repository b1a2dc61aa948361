"""Where rented pods reach the control side: the public address of the gateway.

A pod never gets the Prefect API's own address or credentials: with them one can run commands on the
control machine. It gets the gateway's, and a token that opens its own run only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from runner.errors import ConfigError

PUBLIC = "AXR_GATEWAY_URL"  # what people set: the address with TLS in front of it
LOCAL = "AXR_GATEWAY_LOCAL"  # what the keeper sets: the gateway's own port on this machine
# Where an emulator, which pods of this machine can reach, stands for a cloud.
CLOUD_URLS = {"runpod": "AXR_RUNPOD_URL", "vast": "AXR_VAST_URL"}
RENTED = tuple(CLOUD_URLS)  # clouds whose pods are other people's machines


def gateway_url(cloud: str, environment: Mapping[str, str] = os.environ) -> str:
    """The address that pods of this rented cloud are given, without a slash at its end.

    ConfigError, with what to do, when there is none that they could reach.
    """
    public = environment.get(PUBLIC, "").strip().rstrip("/")
    if _is_loopback(environment.get(CLOUD_URLS.get(cloud, ""), "")):
        public = public or environment.get(LOCAL, "").rstrip("/")
        if public:
            return public
    advice = (
        f"set {PUBLIC} to the address at which pods reach this machine's gateway, such as "
        "https://runner.example.com (README: Where the control side lives), then "
        "`axolotl-runner down` and `up`"
    )
    if not public:
        raise ConfigError(f"cloud {cloud}: its pods can't reach this control side: {advice}")
    if urlsplit(public).scheme not in ("http", "https") or not urlsplit(public).hostname:
        raise ConfigError(f"cloud {cloud}: {PUBLIC}={public} is no address: {advice}")
    if _is_loopback(public):
        raise ConfigError(
            f"cloud {cloud}: {PUBLIC}={public} is this machine as seen by itself, pods can't reach "
            f"it: {advice}"
        )
    return public


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
