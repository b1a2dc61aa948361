"""POST /graphql: a real parser and a small schema behind it.

- A document or variables that do not fit the schema: 400 with `errors`. What a resolver refuses:
  200 with `errors`. Introspection is off.
- The GPU catalog needs no key. A pod's own key may see and end its own pod; else "Unauthorized".

Not covered: spot pods (their fields do not exist, as after RunPod removed them), CPU pods,
endpoints, templates, machine details beyond a name, spend limits.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    GraphQLError,
    NoSchemaIntrospectionCustomRule,
    OperationDefinitionNode,
    build_schema,
    execute_sync,
    parse,
    specified_rules,
    validate,
)

from tests.emulators.calls import Answer, Call, Dropped
from tests.emulators.clock import read_time
from tests.emulators.runpod import graphql_shapes as shapes
from tests.emulators.runpod.account import Account
from tests.emulators.runpod.catalog import CENTERS, GPUS
from tests.emulators.runpod.orders import read_order
from tests.emulators.runpod.pods import Pod
from tests.emulators.runpod.problems import Problem
from tests.emulators.runpod.sdl import SDL

SCHEMA = build_schema(SDL)
RULES = [*specified_rules, NoSchemaIntrospectionCustomRule]
_PUBLIC = {"gpuTypes", "dataCenters", "countryCodes"}


def answer(account: Account, call: Call) -> Answer:
    """The answer to a document; Problem 401 for a wrong or missing key."""
    try:
        request = json.loads(call.raw)
        document = parse(request["query"])
    except (ValueError, KeyError, TypeError, GraphQLError) as bad:
        return _errors(400, [bad])
    if errors := validate(SCHEMA, document, RULES):
        return _errors(400, errors)
    if call.caller is None and not _root_fields(document) <= _PUBLIC:
        raise Problem(401, "unauthorized")
    result = execute_sync(
        SCHEMA,
        document,
        root_value=_Root(account, call.caller),
        variable_values=request.get("variables"),
        operation_name=request.get("operationName"),
    )
    for error in result.errors or []:
        if isinstance(error.original_error, Dropped):
            raise error.original_error
        if error.path is None:  # variables that do not fit
            return _errors(400, result.errors or [])
    return Answer(200, result.formatted)


class _Root:
    """The resolvers of all queries and mutations; `caller` as in Call."""

    def __init__(self, account: Account, caller: str | None) -> None:
        self.account = account
        self.caller = caller

    def myself(self, info: Any) -> dict[str, Any]:
        self._only_account()
        account = self.account
        return {
            "id": "user_emulated",
            "email": "nobody@example.org",
            "pubKey": "\n".join(account.host.ssh_keys),
            "clientBalance": float(account.balance()),
            "currentSpendPerHr": float(account.spend_per_hour()),
            "pods": [self._pod(pod) for pod in account.visible()],
            "networkVolumes": [
                {**volume, "dataCenterId": volume["dataCenter"]}
                for volume in account.volumes.values()
            ],
        }

    def pod(self, info: Any, input: dict[str, Any]) -> dict[str, Any] | None:
        self._only_own(input["podId"])
        try:
            return self._pod(self.account.find(input["podId"]))
        except Problem:
            return None

    def gpuTypes(self, info: Any, input: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        wanted = (input or {}).get("id")
        return [
            shapes.gpu(gpu, self.account.catalog())
            for gpu in GPUS.values()
            if wanted in (None, gpu.id)
        ]

    def dataCenters(self, info: Any) -> list[dict[str, Any]]:
        return [{"id": each.id, "name": each.name, "listed": True} for each in CENTERS.values()]

    def countryCodes(self, info: Any) -> list[str | None]:
        return [*sorted({center.country for center in CENTERS.values()}), None]

    def podFindAndDeployOnDemand(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:
        self._only_account()
        clouds = [input["cloudType"]] if input["cloudType"] != "ALL" else ["SECURE", "COMMUNITY"]
        for cloud in clouds:
            try:
                with self.account.lock:
                    return self._deploy(input, cloud)
            except Problem as problem:
                if problem.status != 400 or cloud == clouds[-1]:
                    raise _refusal(problem) from problem
        raise AssertionError("unreachable")

    def podTerminate(self, info: Any, input: dict[str, Any]) -> None:
        self._only_own(input["podId"])
        try:
            pod = self.account.find(input["podId"])
            self.account.terminate(pod, self.caller or "account")
        except Problem as problem:
            code = {"code": "POD_NOT_FOUND"}
            raise GraphQLError("pod not found to terminate", extensions=code) from problem

    def podStop(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:
        return self._act(input["podId"], "stop")

    def podResume(self, info: Any, input: dict[str, Any]) -> dict[str, Any]:
        return self._act(input["podId"], "start")

    def _act(self, pod_id: str, action: str) -> dict[str, Any]:
        self._only_account()
        try:
            pod = self.account.act(pod_id, action)
        except Problem as problem:
            raise _refusal(problem) from problem
        assert pod is not None
        return self._pod(pod)

    def _deploy(self, given: dict[str, Any], cloud: str) -> dict[str, Any]:
        account = self.account
        order, wish = read_order(
            shapes.v2_body(given, cloud), account.faults["templates"], account.volumes
        )
        if given.get("countryCode"):
            wish = replace(wish, countries=frozenset({given["countryCode"]}))
        for name, attribute in (("stopAfter", "stop_after"), ("terminateAfter", "terminate_after")):
            if given.get(name):
                setattr(order, attribute, read_time(given[name]))
        pod = account.deploy(order, wish)
        if account.faults.take("create_5xx_after"):
            raise Problem(500, "Something went wrong. Please try again later or contact support.")
        if account.faults.take("create_timeout_after"):
            raise Dropped(account.faults["create_timeout_hold"])
        return self._pod(pod)

    def _only_account(self) -> None:
        if self.caller != "account" or self.account.faults["key_scope_403"] is True:
            raise GraphQLError("Unauthorized")

    def _only_own(self, pod_id: str) -> None:
        """A pod's key sees no other pod; of pods that do not exist it may ask."""
        if self.caller != pod_id and pod_id in self.account.pods:
            self._only_account()

    def _pod(self, pod: Pod) -> dict[str, Any]:
        return shapes.pod(pod, self.account.view(pod))


def _refusal(problem: Problem) -> GraphQLError:
    code = {500: "INTERNAL_SERVER_ERROR"}.get(problem.status, "RUNPOD")
    return GraphQLError(problem.detail, extensions={"code": code})


def _root_fields(document: DocumentNode) -> set[str]:
    return {
        field.name.value if isinstance(field, FieldNode) else "a fragment"
        for operation in document.definitions
        if isinstance(operation, OperationDefinitionNode)
        for field in operation.selection_set.selections
    }


def _errors(status: int, errors: list[Any]) -> Answer:
    shown = [
        error.formatted if isinstance(error, GraphQLError) else {"message": f"bad request: {error}"}
        for error in errors
    ]
    return Answer(status, {"errors": shown})
