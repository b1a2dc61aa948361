"""The one place where secrets are taken out of text, before it leaves this process.

Whatever is shown, sent or kept for people goes through `scrub`: log lines, states, artifacts,
notices, reports. What counts as a secret:

- the value of each environment variable whose name says so (HF_TOKEN, AWS_SECRET_ACCESS_KEY,
  DB_PASSWORD, …), that AXR_SECRETS names, or whose value has a secret's form;
- each AXR_SECRET_<NAME>, which is what a run may be given by name;
- what `learn` was told: the task file's `env`, keys of accounts, logins of registries;
- what has a secret's form (runner/secret_shapes.py), whoever's it is.

A secret becomes `[secret HF_TOKEN]`. Values are also found as they stand in JSON, in an address
and in base64. Short and ordinary values (`1`, `true`, `training`) are left where they stand alone:
they are hidden only behind their name, as in `PASSWORD=abc1`.

Not covered: a secret that was cut or broken into lines before it came here.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, quote_plus, urlsplit

from runner.secret_shapes import SHAPES, has_shape, hide, is_secret_name

# Names of further secret variables, for a pod: those that its run was given by name.
NAMES = "AXR_SECRETS"
GRANT = "AXR_SECRET_"
SHORTEST = 8
# From here on a value is hidden inside longer words as well.
UNMISTAKABLE = 16
CHUNK = 32 * 1024
_NO_SECRETS = frozenset({"AXR_RUN", NAMES})
_FILES = re.compile(r"_(FILE|PATH|DIR|SOCK)$|^GOOGLE_APPLICATION_CREDENTIALS$", re.IGNORECASE)
_PATH = re.compile(r"(/[\w.-]+){2,}/?")

# One process works for one run, so what it was told holds to its end.
_learnt: dict[str, str] = {}

Plain = TypeVar("Plain")
Change = Callable[[str], str]


def scrub(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without secrets; scrubbed text stays as it is."""
    found = _replacements(frozenset(known(environment).items()))
    return "".join(_scrubbed(chunk, found) for chunk in _chunks(text, found))


def scrub_plain(value: Plain, environment: Mapping[str, str] = os.environ) -> Plain:
    """The same mapping, list or tuple with each text in it scrubbed; keys stay."""
    if isinstance(value, str):
        return scrub(value, environment)  # type: ignore[return-value]
    if isinstance(value, Mapping):
        return {key: scrub_plain(each, environment) for key, each in value.items()}  # type: ignore[return-value]
    if isinstance(value, list | tuple):
        return type(value)(scrub_plain(each, environment) for each in value)
    return value


def overwrite(data: bytes, environment: Mapping[str, str] = os.environ) -> bytes:
    """The bytes with each secret's value overwritten by x: for files that must keep their places.

    Only known values are found, not what merely has a secret's form.
    """
    found = _replacements(frozenset(known(environment).items()))
    for value, _, _ in found.values:
        form = value.encode("utf-8", errors="surrogateescape")
        if form in data:
            data = data.replace(form, b"x" * len(form))
    return data


def scrub_file(path: Path, environment: Mapping[str, str] = os.environ) -> bool:
    """Scrub a text file in its place, by rename; True when something was in it."""
    text = path.read_bytes().decode("utf-8", errors="surrogateescape")
    clean = scrub(text, environment)
    if clean == text:
        return False
    fresh = path.with_name(f".{path.name}.scrubbed")
    fresh.write_bytes(clean.encode("utf-8", errors="surrogateescape"))
    fresh.replace(path)
    return True


def learn(values: Mapping[str, str]) -> None:
    """Further secrets of this process by name, which need not look like any."""
    _learnt.update({name: value for name, value in values.items() if value})


def known(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The secrets of an environment by name, and those that were learnt."""
    named = environment.get(NAMES, "").split(",")
    found = {
        name.removeprefix(GRANT): value
        for name, value in environment.items()
        if value and name not in _NO_SECRETS and (name in named or is_secret(name, value))
    }
    return found | _learnt


@lru_cache(maxsize=2048)
def is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is a secret, by its name or its own form."""
    return (
        name.startswith(GRANT)
        or (is_secret_name(name) and not _FILES.search(name))
        or has_shape(value)
    )


def mark(label: str) -> str:
    """What stands where a secret stood."""
    return f"[secret {re.sub(r'[^A-Za-z0-9_-]', '_', label)}]"


@dataclass(frozen=True)
class _Replacements:
    """What to look for, the longest first; `marks` matches what needs no second look, and where one
    of `several_lines` is, lines can't be taken apart.
    """

    values: tuple[tuple[str, re.Pattern[str] | None, str], ...]
    marks: re.Pattern[str]
    several_lines: tuple[str, ...]


def _chunks(text: str, found: _Replacements) -> Iterator[str]:
    """The text in pieces of whole lines, so that a second look is at few of them; all of it where
    something of several lines may be in it.
    """
    if len(text) <= CHUNK or any(several in text for several in found.several_lines):
        yield text
        return
    start = 0
    while start < len(text):
        end = text.find("\n", start + CHUNK) + 1 or len(text)
        yield text[start:end]
        start = end


def _scrubbed(text: str, found: _Replacements) -> str:
    while (clean := _once(text, found)) != text:
        text = clean
    return text


def _once(text: str, found: _Replacements) -> str:
    text = _between(text, found, lambda part: _without_values(part, found))
    return _between(text, found, lambda part: hide(part, mark))


def _between(text: str, found: _Replacements, change: Change) -> str:
    """Change what stands between marks: what is hidden is not hidden again."""
    if "[secret " not in text:
        return change(text)
    parts = found.marks.split(text)
    return "".join(part if n % 2 else change(part) for n, part in enumerate(parts))


def _without_values(text: str, found: _Replacements) -> str:
    for value, word, label in found.values:
        if value in text:
            text = word.sub(label, text) if word else text.replace(value, label)
    return text


@lru_cache(maxsize=16)
def _replacements(secrets: frozenset[tuple[str, str]]) -> _Replacements:
    labels: dict[str, str] = {}
    for name, value in sorted(secrets):
        for form in _forms(value):
            labels.setdefault(form, mark(name))
    ordered = sorted(labels, key=lambda form: (-len(form), form))
    every = {*labels.values(), mark("value"), *(mark(shape.label) for shape in SHAPES)}
    return _Replacements(
        tuple((form, _word(form), labels[form]) for form in ordered),
        re.compile("(" + "|".join(map(re.escape, sorted(every))) + ")"),
        ("PRIVATE KEY-----", *(form for form in ordered if "\n" in form)),
    )


def _word(form: str) -> re.Pattern[str] | None:
    """Short values count only as whole words: eight letters may well stand in a longer hash."""
    if len(form) >= UNMISTAKABLE:
        return None
    return re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])){re.escape(form)}(?![A-Za-z0-9])")


def _forms(value: str) -> Iterator[str]:
    """A value and its parts, as they may stand in a text."""
    for part in {value, value.strip(), *value.split("\n"), *_of_addresses(value)}:
        if not _tells(part.strip()):
            continue
        inside = json.dumps(part)[1:-1]
        yield from {part, inside, json.dumps(part, ensure_ascii=False)[1:-1], json.dumps(inside)[1:-1]}  # fmt: skip  # noqa: E501
        yield from {quote(part, safe=""), quote(part), quote_plus(part)}
        yield from {repr(part)[1:-1], base64.b64encode(part.encode(errors="replace")).decode()}


def _of_addresses(value: str) -> Iterator[str]:
    """The parts of addresses that are secret: passwords, and what opens a webhook."""
    for address in value.split():
        if "://" not in address:
            continue
        yield address
        try:
            parts = urlsplit(address)
            yield parts.password or ""
        except ValueError:
            continue
        steps = (*parts.path.split("/"), *(parts.netloc.rpartition("@")[0].split(":")))
        yield from (step for step in steps if len(step) >= UNMISTAKABLE and _has_digit(step))


def _tells(value: str) -> bool:
    """Whether a value can be looked for everywhere without hiding ordinary words."""
    if len(value) < SHORTEST or _PATH.fullmatch(value):
        return False
    ordinary = value.isalpha() or re.fullmatch(r"[\d.:/ -]+", value)
    return not (ordinary and len(value) < 12) and value.strip("*. -_=") != ""


def _has_digit(text: str) -> bool:
    return any(c.isdigit() for c in text)
