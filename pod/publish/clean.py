"""No secret of the run in any file that is published.

Texts are scrubbed as everything that leaves (runner/secrets.py), JSON value by value, so that it
stays JSON. In vocabularies and binary files only the secrets' own values are looked for, since
words there are no names: they are overwritten by as many x. Of weights in safetensors' format the
header is looked at, which is all that is no number.

Files may be hard links to the trainer's own: what is changed becomes a file of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

from runner.secrets import overwrite, scrub, scrub_plain

MOST_TEXT = 32 * 1024 * 1024
BLOCK = 8 * 1024 * 1024
OVERLAP = 64 * 1024  # longer than any secret
_VOCABULARY = re.compile(r"tokenizer\.json|vocab\..*|merges\.txt|added_tokens\.json")


def clean(folder: Path, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Take the secrets out of all files below `folder`; the names of those that held one."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _clean(path, environment):
            found.append(str(path.relative_to(folder)))
    return found


def _clean(path: Path, environment: Mapping[str, str]) -> bool:
    if path.suffix == ".safetensors":
        return _overwritten(path, environment, end=_header_end(path))
    text = None if _VOCABULARY.fullmatch(path.name) else _text(path)
    if text is None:
        return _overwritten(path, environment, end=path.stat().st_size)
    plain = _without_secrets(text, path.suffix, environment)
    if plain == text:
        return False
    fresh = path.with_name(f".{path.name}.clean")
    fresh.write_text(plain, encoding="utf-8", newline="")
    fresh.replace(path)
    return True


def _without_secrets(text: str, suffix: str, environment: Mapping[str, str]) -> str:
    if suffix == ".json":
        try:
            value = json.loads(text)
        except ValueError:
            return scrub(text, environment)
        plain = scrub_plain(value, environment)
        if plain != value:
            text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
        return overwrite(text.encode(), environment).decode(errors="replace")  # in a key
    return scrub(text, environment)


def _text(path: Path) -> str | None:
    """The content of a text file, None for any other."""
    if path.stat().st_size > MOST_TEXT:
        return None
    data = path.read_bytes()
    try:
        return None if b"\0" in data else data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _overwritten(path: Path, environment: Mapping[str, str], *, end: int) -> bool:
    """Overwrite secrets before byte `end`; True when there was one."""
    fresh = path.with_name(f".{path.name}.clean")
    changed = False
    for at in range(0, end, BLOCK):
        with (fresh if changed else path).open("rb") as file:
            file.seek(at)
            data = file.read(min(BLOCK + OVERLAP, end - at))
        plain = overwrite(data, environment)
        if plain == data:
            continue
        if not changed:
            shutil.copyfile(path, fresh)
            changed = True
        with fresh.open("r+b") as target:
            target.seek(at)
            target.write(plain)
    if changed:
        fresh.replace(path)
    return changed


def _header_end(path: Path) -> int:
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
    return min(size, 8 + struct.unpack("<Q", start)[0]) if len(start) == 8 else size
