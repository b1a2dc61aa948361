"""`python pod/axolotl_fields.py FOLDER`: write down which keys the installed axolotl reads.

Run by `make axolotl-fields` with the trainer's Python. FOLDER/axolotl-<version>.json is what is
known of axolotl on machines without it: {"version", "required", "keys", "mentioned", "plugins"}.

A key's value is what may stand below it: null for anything, a mapping of keys for a mapping, a list
with one such mapping for a list of them (the union where a key takes several kinds, as `datasets`
does). `mentioned` are words that axolotl's validators look for without having a field for them,
mostly to refuse them. `plugins` are those that come with axolotl, each with its own keys.
"""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
import sys
import typing
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import axolotl.integrations
from axolotl.integrations.base import BasePlugin
from axolotl.utils.schemas import validation
from axolotl.utils.schemas.config import AxolotlConfigWCapabilities, AxolotlInputConfig
from pydantic import AliasChoices, BaseModel

Keys = dict[str, Any]
_READ = re.compile(r"""data(?:\.get\(|\[)\s*"(\w+)"|fields? = \[([^\]]*)\]""")
DEEPEST = 6


def fields() -> Keys:
    """Everything that the file holds."""
    known = _keys(AxolotlInputConfig)
    required = [
        name for name, field in AxolotlInputConfig.model_fields.items() if field.is_required()
    ]
    return {
        "version": version("axolotl"),
        "required": sorted(required),
        "keys": known,
        "mentioned": sorted(_mentioned() - set(known)),
        "plugins": {name: _keys(args) for name, args in _plugins()},
    }


def _keys(model: type[BaseModel], depth: int = 0) -> Keys:
    found: Keys = {}
    for name, field in model.model_fields.items():
        below = _below(field.annotation, depth + 1)
        for each in _names(name, field):
            found[each] = below
        if isinstance(below, dict) and name == "fsdp_config":
            below.update({f"fsdp_{key}": value for key, value in list(below.items())})
    return dict(sorted(found.items()))


def _names(name: str, field: Any) -> set[str]:
    alias = field.validation_alias
    aliases = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return {name, *(each for each in (field.alias, *aliases) if isinstance(each, str))}


def _below(kind: Any, depth: int) -> Any:
    """What may stand below a value of this type: None for anything."""
    mappings: Keys = {}
    items: Keys = {}
    for each in _alternatives(kind):
        if _is_model(each):
            if each.model_config.get("extra") == "allow" or depth > DEEPEST:
                return None
            mappings |= _keys(each, depth)
        elif typing.get_origin(each) in (list, tuple):
            for item in (one for arg in typing.get_args(each) for one in _alternatives(arg)):
                if _is_model(item):
                    items |= _keys(item, depth)
        elif typing.get_origin(each) is dict or each in (dict, Any):
            return None  # any key
    return [dict(sorted(items.items()))] if items else dict(sorted(mappings.items())) or None


def _alternatives(kind: Any) -> list[Any]:
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if origin is typing.Union or type(kind).__name__ == "UnionType":
        return [each for arg in typing.get_args(kind) for each in _alternatives(arg)]
    return [kind]


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _mentioned() -> set[str]:
    config = sys.modules[AxolotlConfigWCapabilities.__module__]
    sources = inspect.getsource(validation) + inspect.getsource(config)
    words = {one for one, _ in _READ.findall(sources) if one}
    listed = [each for _, several in _READ.findall(sources) for each in several.split(",")]
    words |= {each.strip().strip('"') for each in listed if each.strip().startswith('"')}
    return words - {"capabilities", "env_capabilities"}


def _plugins() -> list[tuple[str, type[BaseModel]]]:
    """(the name as it stands in `plugins:`, the class of its keys)."""
    found = []
    for package in pkgutil.iter_modules(axolotl.integrations.__path__):
        if not package.ispkg:
            continue
        name = f"axolotl.integrations.{package.name}"
        try:
            members = list(vars(import_module(name)).values())
        except ImportError:  # one that needs a package which axolotl does not bring
            continue
        for plugin in members:
            if not (isinstance(plugin, type) and issubclass(plugin, BasePlugin)):
                continue
            args = None if plugin is BasePlugin else plugin().get_input_args()
            if args is not None:
                where, _, word = args.rpartition(".")
                found.append((f"{name}.{plugin.__name__}", getattr(import_module(where), word)))
    return found


if __name__ == "__main__":
    found = fields()
    text = json.dumps(found, indent=1, sort_keys=True)
    file = Path(sys.argv[1], f"axolotl-{found['version']}.json")
    file.write_text(text + "\n", encoding="utf-8")
