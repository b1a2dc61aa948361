"""What the hub accepts at the top of a model card, and how a card is made plainer when it does not.

The hub checks `base_model`, `datasets` and `license` of each commit of a README.md and refuses the
whole commit for a wrong one: a path on somebody's disk, or a licence in words of its own. So only
what has the form of an id of the hub goes there; everything else stands in the text of the card.

Licences: https://huggingface.co/docs/hub/repositories-licenses, as it was in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import yaml

_NAME = re.compile(r"[A-Za-z0-9_]([\w.-]{0,94}[A-Za-z0-9_])?", re.ASCII)
_FILE = re.compile(r"\.(jsonl?|csv|tsv|parquet|arrow|txt|text|zst|gz|zip|git|py|ya?ml)$", re.I)
# Names of loaders, which stand where a data set's name would.
_LOADERS = ("json", "csv", "parquet", "arrow", "text", "xml", "webdataset", "imagefolder")
_FRONT = re.compile(r"\A---\n(?P<yaml>.*?)\n---\n", re.DOTALL)
# What no card can be refused for.
HARMLESS = ("library_name", "pipeline_tag", "tags")

# fmt: off
LICENSES = frozenset({
    "apache-2.0", "mit", "openrail", "bigscience-openrail-m", "creativeml-openrail-m",
    "bigscience-bloom-rail-1.0", "bigcode-openrail-m", "afl-3.0", "artistic-2.0", "bsl-1.0",
    "bsd", "bsd-2-clause", "bsd-3-clause", "bsd-3-clause-clear", "c-uda", "cc", "cc0-1.0",
    "cc-by-2.0", "cc-by-2.5", "cc-by-3.0", "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0",
    "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nd-4.0", "cc-by-nc-nd-3.0",
    "cc-by-nc-nd-4.0", "cc-by-nc-sa-2.0", "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0",
    "cdla-sharing-1.0", "cdla-permissive-1.0", "cdla-permissive-2.0", "wtfpl", "ecl-2.0",
    "epl-1.0", "epl-2.0", "etalab-2.0", "eupl-1.1", "eupl-1.2", "agpl-3.0", "gfdl", "gpl",
    "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1", "lgpl-3.0", "isc", "h-research", "intel-research",
    "lppl-1.3c", "ms-pl", "apple-ascl", "apple-amlr", "mpl-2.0", "odc-by", "odbl",
    "openmdw-1.0", "openrail++", "osl-3.0", "postgresql", "ofl-1.1", "ncsa", "unlicense",
    "zlib", "pddl", "lgpl-lr", "deepfloyd-if-license", "fair-noncommercial-research-license",
    "llama2", "llama3", "llama3.1", "llama3.2", "llama3.3", "llama4", "grok2-community",
    "gemma", "unknown", "other",
})
# fmt: on


def is_hub_id(name: str) -> bool:
    """Whether `name` has the form of a model's or data set's id on the hub (`owner/name`, or an old
    one without an owner); `data/toy.jsonl`, `./x` and `json` have not.
    """
    parts = name.split("/")
    return (
        len(parts) <= 2
        and all(_NAME.fullmatch(part) for part in parts)
        and not ({"--", ".."} & {name[n : n + 2] for n in range(len(name))})
        and not _FILE.search(name)
        and name not in _LOADERS
    )


def known_license(found: object) -> str | None:
    """The licence's id, None for one that the hub does not know or that needs more words."""
    return found if isinstance(found, str) and found in LICENSES - {"unknown", "other"} else None


def with_metadata(metadata: Mapping[str, object], text: str) -> str:
    """A card of metadata and text."""
    dumped = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{dumped}---\n{text}"


def plainer(card: str) -> list[str]:
    """The card, the same with harmless metadata only, and its bare text: what to try in turn."""
    found = _FRONT.match(card)
    if found is None:
        return [card]
    text = card[found.end() :]
    metadata = yaml.safe_load(found["yaml"]) or {}
    least = {key: metadata[key] for key in HARMLESS if key in metadata}
    return [card, with_metadata(least, text), text.lstrip("\n")]
