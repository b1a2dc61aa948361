"""Every create call that an order can become is valid under the published specification."""

from __future__ import annotations

import json
import shlex
import subprocess
from itertools import product
from typing import Any

import pytest

from blocks.image import cuda_of
from blocks.runpod.body import MOST_VARIABLES, command, create_body
from blocks.runpod.candidates import Candidate
from runner.errors import ConfigError
from tests.emulators.runpod.contract import Contract, default_spec
from tests.integration.clouds.runpod_rig import A40, order

API = "https://api.example/v2"
CANDIDATES = [
    Candidate(A40, 2, "SECURE", "EU-SE-1", 0.8),
    Candidate(A40, 1, "COMMUNITY", None, 0.4),
]
# Each with the values that change the form of the body.
CHOICES: dict[str, list[Any]] = {
    "image": [None, "me/own:cu118"],
    "template": [None, "tpl_1"],
    "network_volume": [None, "vol_1"],
    "volume_gb": [0, 5, 200],
    "ports": [(), ("8888/http", "22/tcp")],
    "ssh": [False, True],
    "jupyter": [False, True],
    "registry": [None, "reg_1"],
    "min_cuda": [None, "12.10"],
}


@pytest.fixture(scope="module")
def contract() -> Contract:
    """RunPod's published specification."""
    spec = default_spec()
    if spec is None:
        pytest.skip("no runpod_v2_openapi.json in $AXR_SHARED/specs: calls cannot be validated")
    return Contract(spec)


def _errors(contract: Contract, body: dict[str, Any]) -> list[str]:
    data = json.dumps(body).encode()
    return contract.request_errors("POST", "/v2/pods", {}, "application/json", data)


def test_every_body_is_valid(contract: Contract) -> None:
    """All combinations of what a task file can ask for."""
    for candidate in CANDIDATES:
        for values in product(*CHOICES.values()):
            asked = order(**dict(zip(CHOICES, values, strict=True)))
            body = create_body(asked, candidate, API)
            assert _errors(contract, body) == []


def test_every_field_of_a_body_counts(contract: Contract) -> None:
    """Renamed or of another type, each is noticed; so the test above can fail."""
    full = create_body(
        order(ports=("22/tcp",), ssh=True, jupyter=True, registry="r", min_cuda="12.4"),
        CANDIDATES[0],
        API,
    )
    assert len(full) >= 12
    for name, value in full.items():
        renamed = {key: each for key, each in full.items() if key != name} | {f"{name}X": value}
        assert _errors(contract, renamed), name
        mistyped = full | {name: "x" if isinstance(value, list | dict | bool) else [value]}
        assert _errors(contract, mistyped), name


def test_a_command_survives_any_splitting() -> None:
    """The container gets the script as it is, however RunPod cuts the string into arguments."""
    script = "#!/bin/sh\nprintf '%s' \"a b\\$c\"'d'\n"
    words = shlex.split(command(script))
    assert words[:2] == ["bash", "-c"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "a b$cd"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        (None, "12.8"),
        ("axolotlai/axolotl-cloud:main-py3.11-cu124-2.6.0", "12.4"),
        ("axolotlai/axolotl:main-20260101-py3.12-cu130-2.9.1", "13.0"),
        ("me/own:latest", None),
        ("me/own:cu1234", None),
    ],
)
def test_the_lowest_cuda_version_follows_from_the_image(image: str | None, version: str) -> None:
    """A host that is too old would start, and fail an hour of downloads later."""
    assert cuda_of(image) == version


def test_too_many_variables_are_a_mistake_in_the_task_file() -> None:
    """RunPod takes fifty."""
    many = {f"V{n}": "" for n in range(MOST_VARIABLES)}
    with pytest.raises(ConfigError, match=r"takes 50 variables, this pod would have 51"):
        create_body(order(environment=many), CANDIDATES[0], API)
