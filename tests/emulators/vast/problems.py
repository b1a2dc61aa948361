"""What a handler raises instead of answering, in Vast's many forms."""

from __future__ import annotations

from typing import Any

from tests.emulators.calls import Answer


class Refused(Exception):
    """An answer {success: false, error, msg, …}, or a bare `text` instead.

    The status may be 200: Vast does that. `rule` marks a request that breaks a documented limit
    which the published schema cannot express, so that it is recorded as a violation.
    """

    def __init__(
        self,
        status: int,
        error: str,
        msg: str,
        *,
        extra: dict[str, Any] | None = None,
        text: str | None = None,
        retry_after: float | None = None,
        rule: bool = False,
    ) -> None:
        super().__init__(f"{status} {error}: {msg}")
        self.status = status
        self.error = error
        self.msg = msg
        self.extra = extra or {}
        self.text = text
        self.retry_after = retry_after
        self.rule = rule

    @property
    def answer(self) -> Answer:
        headers = {}
        if self.retry_after is not None:
            headers["Retry-After"] = f"{self.retry_after:g}"
        if self.text is not None:
            return Answer(self.status, self.text, "text/plain", headers=headers)
        body = {"success": False, "error": self.error, "msg": self.msg, **self.extra}
        return Answer(self.status, body, headers=headers)


def invalid(msg: str, *, rule: bool = True) -> Refused:
    """Bad arguments."""
    return Refused(400, "invalid_args", f"error 400/3467: Invalid args: {msg}", rule=rule)


def no_such_instance(status: int = 404) -> Refused:
    """The instance is not there, or is not this account's."""
    return Refused(status, "no_such_instance", "Instance with that ID does not exist.")


def no_such_ask(ask: int, status: int = 400) -> Refused:
    """The offer is gone. The published status is 404; the live one was seen to be 400."""
    msg = f"error 404/3603: no_such_ask  Instance type by id {ask} is not available."
    return Refused(status, "invalid_args", msg, extra={"ask_id": ask})


def no_longer(ask: int) -> Refused:
    """What `cancel_unavail` gets for a bid that does not win."""
    msg = f"error 410/3907: no_such_ask Instance type {ask} is no longer available."
    return Refused(410, "no_such_ask", msg, extra={"ask_id": ask})


def lacks_credit() -> Refused:
    """The account has no money."""
    return Refused(400, "insufficient_credit", "Your account lacks credit; see the billing page.")
