"""Whose account of a cloud this installation uses: a key in the environment, else a block."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from prefect.blocks.core import Block
from prefect.settings import PREFECT_API_URL
from pydantic import SecretStr

from runner.errors import ConfigError
from runner.secrets import learn

Account = TypeVar("Account", bound=Block)


@dataclass(frozen=True)
class Balance:
    """USD left, and USD per hour that all pods of the account spend now."""

    left: float
    spend_per_hour: float


def find_account(kind: type[Account], *, name: str, variable: str) -> Account | None:
    """The account with the key in `variable`, else the block `name`; None when there is neither."""
    key = os.environ.get(variable, "").strip()
    if key:
        return kind(api_key=SecretStr(key))
    if not PREFECT_API_URL.value():
        return None  # asking for a block would start a server for the moment
    try:
        found = kind.load(name)
    except ValueError:  # what Prefect raises for a block that does not exist
        return None
    assert isinstance(found, kind)
    learn({variable: found.api_key.get_secret_value()})  # type: ignore[attr-defined]
    return found


def needed(account: Account | None, kind: type[Account], *, name: str, variable: str) -> Account:
    """The account; ConfigError, with what to do, when this installation has none."""
    if account is None:
        raise ConfigError(
            f"cloud {name} needs an account: set {variable} for the control side, or make a block "
            f"`{name}` of the type {kind._block_type_name} in the "
            "Prefect UI"
        )
    return account
