"""What a handler raises instead of answering."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class Problem(Exception):
    """An answer of status 400 or more, with the body of `application/problem+json`.

    `retry_after` in seconds becomes the header; `rule` marks a request that breaks a rule which
    the schema cannot express, so that it is recorded as a violation.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        errors: list[str] | None = None,
        retry_after: float | None = None,
        rule: bool = False,
    ) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail
        self.errors = errors
        self.retry_after = retry_after
        self.rule = rule

    @property
    def body(self) -> dict[str, Any]:
        try:
            title = HTTPStatus(self.status).phrase
        except ValueError:
            title = "Error"
        body = {"title": title, "status": self.status, "detail": self.detail}
        return body if self.errors is None else {**body, "errors": self.errors}
