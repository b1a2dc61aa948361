"""The true texts of this machine's libraries: each failure is provoked, its traceback diagnosed."""

from __future__ import annotations

import subprocess
import sys
import traceback
from collections.abc import Callable

import httpx
import pytest
from huggingface_hub import HfApi, hf_hub_download

from runner.diagnosis import diagnose
from tests.emulators.hub.server import running


def told(fails: Callable[[], object]) -> str:
    """The traceback of a call that fails."""
    try:
        fails()
    except Exception:
        return traceback.format_exc()
    raise AssertionError("it did not fail")


def kind_of(log: str) -> str:
    """The class of a failure before the first step."""
    found = diagnose("crash", "the trainer left with code 1 before the first step", log)
    assert found is not None
    return found.kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, "hub token refused"), (403, "hub permission"), (429, "hub rate limit")],
)
def test_what_the_hub_refuses(status: int, kind: str) -> None:
    """As huggingface_hub tells it of a fault of the emulated hub."""
    with running(0) as hub:
        words = "Invalid user token." if status == 401 else "no"
        fault = {"match": "whoami", "times": 9, "status": status, "message": words}
        httpx.post(f"{hub.url}/_faults", json={"faults": [fault]}).raise_for_status()
        api = HfApi(endpoint=hub.url, token="hf_x")
        assert kind_of(told(api.whoami)) == kind


def test_a_model_that_the_hub_does_not_have() -> None:
    with running(0) as hub:
        log = told(
            lambda: hf_hub_download("me/nothing", "config.json", endpoint=hub.url, token=False)
        )
        assert kind_of(log) == "model not found"


def test_an_address_that_nobody_knows() -> None:
    log = told(lambda: httpx.get("http://no-such-host.invalid/x"))
    assert kind_of(log) == "network or DNS"


def test_a_device_that_is_full() -> None:
    """H41, with the kernel's own refusal."""

    def write() -> None:
        with open("/dev/full", "wb") as full:
            full.write(b"x" * 100_000)

    assert kind_of(told(write)) == "disk full"


def test_a_package_that_can_not_be_installed_and_one_that_is_not_there() -> None:
    """What `entry:` mostly fails of."""
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "no-such-package==1.0"]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode != 0
    assert kind_of(done.stdout + done.stderr) == "dependency"
    found = diagnose("crash", "x", told(lambda: __import__("no_such_module")))
    assert found is not None
    assert found.advice.startswith("Install no_such_module in `entry:`")
