"""Proof that this pod can reach its cloud's API with its own key, before a training may start.

A pod that can't end itself has lost its dead-man switch. What is asked changes nothing: RunPod is
asked for the pod itself, by REST v2 and, where that is refused, by GraphQL (which rights the pod's
key has in v2 is written nowhere). The key of a Vast instance may start, stop and destroy it, and
perhaps not read it: then it is told to start, which a running instance already has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pod.asking import ask

SEE = "query ($id: String!) { pod(input: {podId: $id}) { id } }"
TIMEOUT = 20.0

State = Literal["proved", "refused", "unknown"]


@dataclass(frozen=True)
class Proof:
    """Whether the key opens this pod's own door; `why` is one line with the answers."""

    state: State
    why: str


def prove(environment: Mapping[str, str]) -> Proof:
    """Ask once. An API that is away or says nothing of the pod leaves it unknown."""
    cloud = environment.get("AXR_CLOUD", "")
    try:
        match cloud:
            case "runpod":
                return _prove_runpod(environment)
            case "vast":
                return _prove_vast(environment)
    except KeyError as missing:
        return Proof("refused", f"the pod has no variable {missing}")
    return Proof("proved", "a local pod ends itself by signals")


def _prove_runpod(environment: Mapping[str, str]) -> Proof:
    api, pod = environment["AXR_CLOUD_API"].rstrip("/"), environment["AXR_POD"]
    key = environment["RUNPOD_API_KEY"]
    rest = ask("GET", f"{api}/pods/{pod}", key, timeout=TIMEOUT)
    if rest.status == 200 and isinstance(rest.body, dict) and rest.body.get("id") == pod:
        return Proof("proved", "REST 200")
    question = {"query": SEE, "variables": {"id": pod}}
    graphql = ask("POST", api.rpartition("/")[0] + "/graphql", key, question, timeout=TIMEOUT)
    body = graphql.body if isinstance(graphql.body, dict) else {}
    why = f"REST {rest.status}, GraphQL {graphql.status}"
    if (body.get("data") or {}).get("pod"):
        return Proof("proved", why)
    errors = [str(error.get("message")) for error in body.get("errors") or []]
    if errors:
        why += f" {errors[0]}"
    barred = graphql.refused or any("unauthorized" in error.lower() for error in errors)
    return Proof("refused" if rest.refused and barred else "unknown", why)


def _prove_vast(environment: Mapping[str, str]) -> Proof:
    api, pod = environment["AXR_CLOUD_API"].rstrip("/"), environment["AXR_POD"]
    key = environment["CONTAINER_API_KEY"]
    url = f"{api}/instances/{pod}/"
    seen = ask("GET", url, key, timeout=TIMEOUT)
    instance = seen.body.get("instances") if isinstance(seen.body, dict) else None
    if seen.status == 200 and isinstance(instance, dict) and str(instance.get("id")) == pod:
        return Proof("proved", "GET 200")
    started = ask("PUT", url, key, {"state": "running"}, timeout=TIMEOUT)
    why = f"GET {seen.status}, PUT {started.status}"
    if started.status == 200 and isinstance(started.body, dict) and started.body.get("success"):
        return Proof("proved", why)
    return Proof("refused" if seen.refused and started.refused else "unknown", why)
