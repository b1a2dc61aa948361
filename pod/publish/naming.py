"""In a model's own files its base is named as in the task file.

The trainer may have been given a copy on the pod's disk, and writes down where that was: an adapter
that names such a path can be loaded by nobody else.
"""

from __future__ import annotations

import json
from pathlib import Path

from pod.rundir import replace_text
from runner.model_card import ADAPTER_FOLDER, Source

_NAMES = {
    "adapter_config.json": "base_model_name_or_path",
    f"{ADAPTER_FOLDER}/adapter_config.json": "base_model_name_or_path",
    "config.json": "_name_or_path",
}


def name_base(model: Path, base: Source) -> None:
    """Write the base's name, and for an adapter the revision that it belongs to, if it is known.

    ValueError for a file that is no JSON.
    """
    for name, key in _NAMES.items():
        path = model / name
        if not path.is_file():
            continue
        config = json.loads(path.read_text(encoding="utf-8"))
        if key not in config:
            continue
        wanted = {**config, key: base.name}
        if base.hub_id and base.revision and "revision" in config:
            wanted["revision"] = config["revision"] or base.revision
        if wanted != config:
            replace_text(path, json.dumps(wanted, indent=2, ensure_ascii=False) + "\n")
