"""What tests of this process need to let huggingface_hub talk to the emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.emulators.hub.server import Emulator


def environment(hub: Emulator, home: Path, token: str = "hf_write") -> dict[str, str]:
    """Variables for a process that shall use this hub."""
    return {
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HOME": str(home),
    }


def use_here(patch: pytest.MonkeyPatch) -> None:
    """The same for this process, where the library was imported long ago with other ones. The hub's
    address must be given to HfApi.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import _detect_agent, _http

    patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    # A second is long for a test.
    usual = _http.http_backoff.__kwdefaults__ or {}
    patch.setitem(usual, "base_wait_time", 0.05)
    patch.setattr(_detect_agent, "_registry", {"standardEnvVars": [], "harnesses": {}})


def files(hub: Emulator, repo: str) -> dict[str, dict[str, Any]]:
    """The files of a repository, without what every new one has."""
    found = dict(hub.state["repos"][repo]["files"])
    found.pop(".gitattributes")
    return found


def received(hub: Emulator, repo: str) -> dict[str, bytes]:
    """The content of every file of every commit that the hub took, by `commit/name`."""
    return {
        f"{number}/{name}": entry.content
        if entry.content is not None
        else hub.storage.blob(str(entry.sha256)).read_bytes()
        for number, commit in enumerate(hub.accounts.repos[repo].commits)
        for name, entry in commit.tree.items()
    }
