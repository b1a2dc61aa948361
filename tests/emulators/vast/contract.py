"""Requests and successful answers held against the published specifications, a file per call.

Where these contradict what the SDK sends and what the live service was seen to do, they are not
followed: `env` is an object, the SDK sends null for what is not set, `type` may be "on-demand",
`order` has as many pairs as one likes, `extra_env` holds pairs, `ports` is an object, and refusals
have other statuses and words.
`Contract(None)` checks nothing: the specifications are not part of the repository.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

# manage_instance covers start, stop and label, which are the same call.
FILES = (
    "change_bid",
    "create_instance",
    "destroy_instance",
    "logs",
    "manage_instance",
    "reboot_instance",
    "search_offers",
    "show_charges",
    "show_instance",
    "show_instances",
    "show_user",
)
_LOOSE = ("env", "runtype", "extra_env", "ports", "order")


def default_spec() -> Path | None:
    """The folder of specifications in $AXR_SHARED or the folder `shared` beside the repository."""
    repository = Path(__file__).resolve().parents[3]
    shared = Path(os.environ.get("AXR_SHARED") or repository.parent / "shared")
    spec = shared / "specs" / "vast"
    return spec if spec.is_dir() else None


class Contract:
    """What the specifications say of each call; errors are texts, an empty list means valid."""

    def __init__(self, folder: Path | None) -> None:
        self.on = folder is not None
        self._calls: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {}
        for name in FILES if folder else ():
            assert folder is not None
            document = yaml.safe_load((folder / f"{name}.yaml").read_text())
            for path, item in document["paths"].items():
                for method, call in item.items():
                    form = re.sub(r"\{\w+\}", "#", path).strip("/")
                    self._calls[method.upper(), form] = (call, document)

    @classmethod
    @functools.cache
    def of(cls, folder: Path | None) -> Contract:
        """Read once in a process."""
        return cls(folder)

    def request_errors(
        self, method: str, path: str, query: Mapping[str, str], body: Any
    ) -> list[str]:
        """What is wrong with a request; calls unknown to the specifications pass."""
        call, document = self._find(method, path)
        errors = [
            f"{parameter['name']}: missing"
            for parameter in call.get("parameters", [])
            if parameter["in"] == "query" and parameter["required"]
            if parameter["name"] not in query
        ]
        for name, value in query.items():
            schema: dict[str, Any] = next(
                (each["schema"] for each in call.get("parameters", []) if each["name"] == name), {}
            )
            if schema.get("type") in ("integer", "boolean"):
                errors += self._errors(schema, _parsed(value), name, document)
        wanted = call.get("requestBody")
        if wanted is None or (not body and not wanted.get("required")):
            return errors
        if not isinstance(body, dict):
            return [*errors, "body: a JSON object expected"]
        given = {name: value for name, value in body.items() if value is not None}
        schema = wanted["content"]["application/json"]["schema"]
        return errors + self._errors(schema, given, "body", document)

    def response_errors(self, method: str, path: str, status: int, body: Any) -> list[str]:
        """What is wrong with a successful answer; `body` is parsed JSON."""
        call, document = self._find(method, path)
        answer = call.get("responses", {}).get(str(status))
        if answer is None or status >= 400:
            return []
        schema = answer["content"]["application/json"]["schema"]
        return self._errors(schema, body, "body", document)

    def _find(self, method: str, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
        form = re.sub(r"/\d+(?=/|$)", "/#", path).strip("/")
        return self._calls.get((method, form), ({}, {}))

    def _errors(
        self, schema: dict[str, Any], value: Any, where: str, document: dict[str, Any]
    ) -> list[str]:
        validator = Draft202012Validator(_modern(schema, document))
        return [
            f"{'.'.join([where, *map(str, error.absolute_path)])}: {error.message}"
            for error in validator.iter_errors(value)
        ]


def _modern(schema: Any, document: dict[str, Any]) -> Any:
    """OpenAPI 3.0's schema as JSON schema: references put in, `nullable` said by the type."""
    if isinstance(schema, list):
        return [_modern(each, document) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return {"anyOf": [_modern(found, document), {"type": "null"}]}
    made = {
        name: _modern(value, document)
        for name, value in schema.items()
        if name not in ("example", "format", "description", "default", "nullable")
    }
    if isinstance(schema.get("type"), str) and schema.get("nullable"):
        made["type"] = [schema["type"], "null"]
    if isinstance(made.get("properties"), dict):
        for name in _LOOSE:
            if name in made["properties"]:
                made["properties"][name] = {}
    if "ondemand" in (made.get("enum") or ()):
        made["enum"] = [*made["enum"], "on-demand"]
    return made


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
