"""`python pod/validate.py ASKED ANSWERS`: axolotl's own verdict on configurations.

Run with the trainer's Python, no GPU needed. ASKED holds a JSON list of {"config", "capabilities"};
ANSWERS gets {"version", "answers"}, one list of {"kind", "path", "message"} for each: kind is
`refused` (axolotl says no), `stumbled` (it fails on the values) or `unsure` (what fails is this
machine's, not the file's).

Plugins are loaded only when they are axolotl's own: a plugin of the task file is code of a
repository, which is not run to check it.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from axolotl.integrations.base import PluginManager
from axolotl.utils import config as axolotl_config
from axolotl.utils.config import validate_config
from axolotl.utils.dict import DictDefault
from axolotl.utils.schemas import datasets as schemas
from pydantic import BaseModel, ValidationError

OURS = "axolotl."
Answer = dict[str, Any]

_merge = axolotl_config.merge_input_args


@functools.cache
def _merged(plugins: tuple[str, ...]) -> Any:
    """The schema with these plugins' keys: to build it takes longer than to use it."""
    return _merge()


axolotl_config.merge_input_args = lambda: _merged(tuple(PluginManager.get_instance().plugins))


def verdict(config: dict[str, Any], capabilities: dict[str, Any]) -> list[Answer]:
    """What axolotl says of one configuration; nothing when it takes it."""
    _load_plugins(config)
    torch_version = str(torch.__version__).partition("+")[0]
    try:
        validate_config(DictDefault(config), capabilities, {"torch_version": torch_version})
    except ValidationError as error:
        return list(_errors(error, config))
    except (ImportError, OSError) as error:
        return [_answer("unsure", [], error)]
    except (DeprecationWarning, NotImplementedError, ValueError) as error:
        return [_answer("refused", [], error)]
    except Exception as error:  # whatever its validators do on values that they did not expect
        return [_answer("stumbled", [], error)]
    return []


def _load_plugins(config: dict[str, Any]) -> None:
    manager = PluginManager.get_instance()
    manager.plugins.clear()
    for name in config.get("plugins") or []:
        if isinstance(name, str) and name.startswith(OURS):
            with suppress(Exception):  # without it its keys are not looked at
                manager.register(name)


def _errors(error: ValidationError, config: dict[str, Any]) -> Iterator[Answer]:
    start: list[str | int] = []
    model = getattr(schemas, error.title, None)
    if isinstance(model, type) and issubclass(model, BaseModel):
        start = ["datasets", _first_refused(model, config.get("datasets") or [])]
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        message = each["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        yield {"kind": "refused", "path": [*start, *each["loc"]], "message": message}


def _first_refused(model: type[BaseModel], datasets: list[Any]) -> int:
    for index, dataset in enumerate(datasets):
        try:
            model.model_validate(dataset)
        except ValidationError:
            return index
    return 0


def _answer(kind: str, path: list[str | int], error: BaseException) -> Answer:
    return {"kind": kind, "path": path, "message": f"{error}" or type(error).__name__}


if __name__ == "__main__":
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = [verdict(each["config"], each["capabilities"]) for each in asked]
    found = {"version": importlib.metadata.version("axolotl"), "answers": answers}
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
