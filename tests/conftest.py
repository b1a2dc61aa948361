"""Options of the whole test suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--long`: also what takes many minutes (`make e2e`)."""
    parser.addoption("--long", action="store_true", help="run the long sweeps too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the long sweeps unless they were asked for; a marker with the reason stays visible."""
    if config.getoption("--long"):
        return
    for item in items:
        if item.get_closest_marker("chaos"):
            item.add_marker(pytest.mark.skip(reason="a long sweep: make e2e, or pytest --long"))
