"""A trained model in a place, beside the checkpoints of its run.

<run>/model/…       its files
<run>/model.json    {format, t, files: {name: {bytes, sha256}}}, written last
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pod.rundir import read_json, sha256_of
from pod.store.places import Place, Source, StoreError


def store_model(place: Place, run: str, files: Mapping[str, Path]) -> bool:
    """Store a trained model, its manifest last; False when the store has this very one.

    Raises StoreError when the place does not work, or does not list what it was given.
    """
    facts = {
        name: {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        for name, path in sorted(files.items())
    }
    place.check()
    there = place.listing(f"{run}/")
    if _stored_model(place, run, there) == facts and _lists(there, run, facts):
        return False
    sources = {
        f"{run}/model/{name}": Source(files[name], str(fact["sha256"]))
        for name, fact in facts.items()
    }
    stale = [name for name in there if name.startswith(f"{run}/model/") and name not in sources]
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "model.json"
        note.write_text(json.dumps({"format": 1, "t": time.time(), "files": facts}) + "\n")
        place.put({**sources, f"{run}/model.json": Source(note)}, delete=stale)
    if not _lists(place.listing(f"{run}/"), run, facts):
        raise StoreError(f"{place.url} does not list the model as it was sent")
    return True


def _stored_model(place: Place, run: str, names: Mapping[str, int]) -> dict[str, Any] | None:
    """The facts in the manifest of the stored model."""
    name = f"{run}/model.json"
    if name not in names:
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            place.get(name, Path(folder) / "model.json")
            found = (read_json(Path(folder) / "model.json") or {}).get("files")
        except (KeyError, ValueError):  # deleted meanwhile, or damaged: as good as none
            return None
    return found if isinstance(found, dict) else None


def _lists(names: Mapping[str, int], run: str, facts: Mapping[str, Any]) -> bool:
    return all(names.get(f"{run}/model/{name}") == fact["bytes"] for name, fact in facts.items())
