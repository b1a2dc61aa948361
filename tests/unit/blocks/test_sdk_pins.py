"""V12: the clouds' SDKs break their callers between minor releases, so both are held to one."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("package", ["vastai", "runpod"])
def test_an_sdk_is_held_to_one_minor_release_and_that_one_is_installed(package: str) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = next(each for each in project["dependencies"] if each.startswith(package))
    held = re.fullmatch(rf"{package}>=(\d+)\.(\d+)(?:\.\d+)?,<(\d+)\.(\d+)", wanted)
    assert held, wanted
    major, minor, *limit = (int(number) for number in held.groups())
    assert limit == [major, minor + 1]
    assert version(package).split(".")[:2] == [str(major), str(minor)]
