"""Whose RunPod account it is: RUNPOD_API_KEY, else a Prefect block named `runpod`.

AXR_RUNPOD_URL overrides the address (an emulator, a proxy). Rented pods get neither.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import ClassVar

from prefect.blocks.core import Block
from pydantic import Field, SecretStr

from blocks.account import Balance, find_account, needed
from blocks.runpod.balance import balance
from blocks.runpod.client import BASE_URL, RunPodClient
from blocks.runpod.cloud import RunPodCloud

BLOCK = "runpod"
KEY = "RUNPOD_API_KEY"
URL = "AXR_RUNPOD_URL"


class RunPodAccount(Block):
    """The RunPod account that pods are rented with."""

    _block_type_name: ClassVar[str | None] = "RunPod Account"
    _block_type_slug: ClassVar[str | None] = "runpod-account"

    api_key: SecretStr = Field(description="An API key that may create and delete pods.")
    base_url: str = Field(default=BASE_URL, description="The address of REST v2.")

    @property
    def url(self) -> str:
        """Where REST v2 is reached."""
        return os.environ.get(URL) or self.base_url

    def cloud(self) -> RunPodCloud:
        """The Cloud interface of this account."""
        return RunPodCloud(RunPodClient(self.api_key.get_secret_value(), self.url))

    def balance(self) -> Balance:
        """What the account has left; TryAgain when RunPod does not say."""
        return balance(self.api_key.get_secret_value(), self.url)


@lru_cache(maxsize=1)
def runpod_account() -> RunPodAccount | None:
    """The account of this installation, None when there is none. Read once in a process."""
    return find_account(RunPodAccount, name=BLOCK, variable=KEY)


@lru_cache(maxsize=1)
def runpod_cloud() -> RunPodCloud:
    """The cloud of this installation's account; ConfigError when it has none."""
    account = needed(runpod_account(), RunPodAccount, name=BLOCK, variable=KEY)
    return account.cloud()
