"""Requests and answers held against the published specification.

`Contract(None)` checks nothing: the specification is not part of the repository.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from tests.emulators.clock import read_time

SPEC = "runpod_v2_openapi.json"
_ROOT = "urn:runpod-v2"
_FORMATS = FormatChecker(formats=[])


@_FORMATS.checks("date-time", raises=ValueError)  # type: ignore[untyped-decorator]
def _is_time(value: object) -> bool:
    return not isinstance(value, str) or read_time(value) > 0


def default_spec() -> Path | None:
    """The specification in $AXR_SHARED or the folder `shared` beside the repository, if any."""
    repository = Path(__file__).resolve().parents[3]
    shared = Path(os.environ.get("AXR_SHARED") or repository.parent / "shared")
    spec = shared / "specs" / SPEC
    return spec if spec.is_file() else None


@dataclass(frozen=True)
class Operation:
    """One method of one path of the specification."""

    spec: dict[str, Any]
    parameters: list[dict[str, Any]]


class Contract:
    """What the specification says of each call; errors are texts, an empty list means valid."""

    def __init__(self, spec: Path | None) -> None:
        self._document: dict[str, Any] = json.loads(spec.read_text()) if spec else {"paths": {}}
        resource = DRAFT202012.create_resource(self._document)
        self._registry: Registry[Any] = Registry().with_resource(_ROOT, resource)
        self._paths = [
            (re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), item)
            for path, item in sorted(self._document["paths"].items(), key=lambda one: "{" in one[0])
        ]
        self._validators: dict[int, Draft202012Validator] = {}
        self.on = spec is not None

    @classmethod
    @functools.cache
    def of(cls, spec: Path | None) -> Contract:
        """Read and compiled once in a process."""
        return cls(spec)

    def request_errors(
        self, method: str, path: str, query: Mapping[str, str], media: str, body: bytes
    ) -> list[str]:
        """What is wrong with a request; calls unknown to the specification pass."""
        operation = self._find(method, path)
        if operation is None:
            return []
        errors = [
            error
            for parameter in operation.parameters
            if parameter["in"] == "query" and parameter["name"] in query
            for error in self._parameter_errors(parameter, query[parameter["name"]])
        ]
        wanted = operation.spec.get("requestBody")
        if wanted is None:
            return errors
        if media.split(";")[0].strip() != "application/json":
            return [*errors, f"body: application/json expected, not {media or 'nothing'}"]
        try:
            value = json.loads(body)
        except ValueError:
            return [*errors, "body: not JSON"]
        return errors + self._errors(wanted["content"]["application/json"]["schema"], value, "body")

    def response_errors(
        self, method: str, path: str, status: int, media: str | None, body: Any
    ) -> list[str]:
        """What is wrong with an answer; `body` is parsed JSON, None for no body."""
        operation = self._find(method, path)
        if operation is None:
            return []
        answers = operation.spec["responses"]
        answer = answers.get(str(status)) or (answers.get("default") if status >= 400 else None)
        if answer is None:
            return [f"status {status} is not among {', '.join(answers)}"]
        content = self._resolved(answer).get("content")
        if not content:
            return [] if body is None and media is None else ["a body where none is meant"]
        if media not in content:
            return [f"media type {media} is not among {', '.join(content)}"]
        if media == "text/event-stream":
            return []
        return self._errors(content[media]["schema"], body, "body")

    def _find(self, method: str, path: str) -> Operation | None:
        for pattern, item in self._paths:
            if pattern.fullmatch(path) and method.lower() in item:
                spec = item[method.lower()]
                given = [*item.get("parameters", []), *spec.get("parameters", [])]
                return Operation(spec, [self._resolved(parameter) for parameter in given])
        return None

    def _parameter_errors(self, parameter: dict[str, Any], text: str) -> list[str]:
        schema = self._resolved(parameter["schema"])
        value: Any = text
        if schema.get("type") == "array":
            value = text.split(",")
        elif schema.get("type") == "integer" and re.fullmatch(r"-?\d+", text):
            value = int(text)
        elif schema.get("type") == "boolean" and text in ("true", "false"):
            value = text == "true"
        return self._errors(parameter["schema"], value, parameter["name"])

    def _errors(self, schema: dict[str, Any], value: Any, where: str) -> list[str]:
        validator = self._validators.get(id(schema))
        if validator is None:
            validator = Draft202012Validator(
                _absolute(schema), registry=self._registry, format_checker=_FORMATS
            )
            self._validators[id(schema)] = validator
        return [
            f"{'.'.join([where, *map(str, error.absolute_path)])}: {error.message}"
            for error in validator.iter_errors(value)
        ]

    def _resolved(self, value: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in value:
            found: Any = self._document
            for part in value["$ref"].removeprefix("#/").split("/"):
                found = found[part.replace("~1", "/").replace("~0", "~")]
            value = found
        return value


def _absolute(schema: Any) -> Any:
    """The schema with references that find the specification from wherever they are."""
    if isinstance(schema, dict):
        return {
            name: _ROOT + value if name == "$ref" else _absolute(value)
            for name, value in schema.items()
        }
    return [_absolute(value) for value in schema] if isinstance(schema, list) else schema
