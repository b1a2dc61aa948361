"""Whose Vast account it is: VAST_API_KEY, else a Prefect block named `vast`.

AXR_VAST_URL overrides the address (an emulator, a proxy). Rented pods get neither. The files where
the SDK would look for a key are not read: a key is given to this project, not found.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from blocks.account import Balance, find_account, needed
from blocks.vast.client import BASE_URL, VastClient
from blocks.vast.cloud import VastCloud
from blocks.vast.look import price_now

BLOCK = "vast"
KEY = "VAST_API_KEY"
URL = "AXR_VAST_URL"


class VastAccount(Block):
    """The Vast.ai account that pods are rented with."""

    _block_type_name: ClassVar[str | None] = "Vast Account"
    _block_type_slug: ClassVar[str | None] = "vast-account"

    api_key: SecretStr = Field(description="An API key that may search, create, see and destroy.")
    base_url: str = Field(default=BASE_URL, description="The address of the API, without a path.")

    @property
    def url(self) -> str:
        """Where the API is reached."""
        return os.environ.get(URL) or self.base_url

    def client(self) -> VastClient:
        """The account's client."""
        return VastClient(self.api_key.get_secret_value(), self.url)

    def cloud(self) -> VastCloud:
        """The Cloud interface of this account."""
        return VastCloud(self.client())

    def balance(self) -> Balance:
        """What the account can still spend; TryAgain when Vast does not say."""
        client = self.client()
        return Balance(client.credit(), sum(map(price_now, client.instances())))


@lru_cache(maxsize=1)
def vast_account() -> VastAccount | None:
    """The account of this installation, None when there is none. Read once in a process."""
    return find_account(VastAccount, name=BLOCK, variable=KEY)


@lru_cache(maxsize=1)
def vast_cloud() -> VastCloud:
    """The cloud of this installation's account; ConfigError when it has none."""
    account = needed(vast_account(), VastAccount, name=BLOCK, variable=KEY)
    return account.cloud()
