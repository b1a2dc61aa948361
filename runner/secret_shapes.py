"""What secrets look like, whoever's they are: the forms that services give their keys, and values
that stand behind a name such as `password=`.

`hide` replaces them; it is the half of `runner.secrets.scrub` that knows no values. Chosen so that
what a run writes all the time stays: commits and hashes, run ids, `eos_token: </s>`, paths.

Not covered: a key without a form of its own, alone on a line, whose value nobody has told us.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Literal

Mark = Callable[[str], str]


@dataclass(frozen=True)
class Shape:
    """One form. `hints`: texts of which one must be there, looked for before the slower pattern,
    whose group `secret`, else the whole match, is what is replaced.
    """

    label: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(label: str, hints: str, pattern: str) -> Shape:
    return Shape(label, tuple(hints.split("|")), re.compile(pattern, re.ASCII))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words of a program, such as hf_quantizationconfig, have neither capitals nor digits.
_RANDOM = r"(?=[a-z_-]*[A-Z0-9])"
SHAPES = (
    _shape(
        "private-key",
        "PRIVATE KEY-----",
        # Up to its end, but never out of the text in quotes that it stands in.
        r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY-----(?:(?!-----END)[A-Za-z0-9+/=\s\\:,-])*"
        r"(?:-----END (?:[A-Z]+ ){0,3}PRIVATE KEY-----)?",
    ),
    _shape(
        "webhook",
        "/webhooks/|hooks.slack.com/|discord://|api.telegram.org/bot|/webhookb2/",
        r"(?:discord(?:app)?\.com/api/(?:v\d+/)?webhooks/|hooks\.slack\.com/\w+/|discord://"
        r"|api\.telegram\.org/bot|/webhookb2/)(?P<secret>[^\s\"'<>\\,;)\[\]]+)",
    ),
    _shape("password", "://", r"://[^\s/:@\"'<>\[\]]*:(?P<secret>[^\s/@\"'<>\[\]]+)@"),
    _shape("token", "://", r"://(?P<secret>[\w-]{20,})@"),
    _shape("jwt", "eyJ", r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*"),
    _shape("pod-token", "axr1.", r"axr1\.[\w-]{16,}\.[\w-]{20,}"),
    _shape("hf-token", "hf_", rf"hf_(?:oauth_|jwt_)?{_RANDOM}[A-Za-z0-9]{{16,}}"),
    _shape("runpod-key", "rpa_", r"rpa_[A-Za-z0-9]{20,}"),
    _shape("wandb-key", "wandb_v1_", r"wandb_v1_[\w-]{20,}"),
    _shape("aws-key", "AKIA|ASIA", r"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("github-token", "gh", r"gh(?:[pousr]_[A-Za-z0-9]{20,}|_pat_\w{20,})"),
    _shape("github-token", "github_pat_", r"github_pat_\w{20,}"),
    _shape("gitlab-token", "glpat-", r"glpat-[\w-]{20,}"),
    _shape("slack-token", "xoxa-|xoxb-|xoxe|xoxp-|xoxr-|xoxs-", r"xox[abeoprs]-[\w-]{10,}"),
    _shape("api-key", "sk-", rf"sk-(?=[\w-]*[0-9]){_RANDOM}[\w-]{{20,}}"),
    _shape(
        "bearer",
        "earer ",
        r"[Bb]earer[ \t]+(?P<secret>(?=[A-Za-z._~+/=-]*[0-9])[\w.~+/=-]{12,})",
    ),
    _shape(
        "authorization",
        "uthorization",
        r"[Aa]uthorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?"
        r"(?:[Bb]asic|[Tt]oken|[Bb]earer)[ \t]+(?P<secret>[\w.~+/=-]{6,})",
    ),
)
# Where a name that tells may end, in small letters; quicker to find one by one than together.
_ENDINGS = ("token", "secret", "passw", "passphrase", "key", "credential", "signature")
_REST = re.compile(
    r"(?P<name>\w{1,28})"
    r"(?P<sign>\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}|[ \t]{1,2})(?P<quote>\\?[\"']?)"
    r"(?P<secret>[A-Za-z0-9/+_~.@!#%^*?-][^\s\"'\\,;&<>{}()\[\]|`$]{3,})",
    re.ASCII,
)
_NAME_CHARACTERS = string.ascii_letters + string.digits + "_.-"
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Right after a character of a word; the n of a JSON text's \n is none.
_INSIDE = re.compile(r"(?<!\\)[A-Za-z0-9_]\Z|\\[^nrt]\Z")

STRONG = frozenset({"password", "passwd", "passphrase", "secret", "credential", "credentials"})
WEAK = frozenset({"token", "key", "apikey", "auth", "pat", "webhook", "webhooks", "signature"})
# What may follow the word that tells: AWS_ACCESS_KEY_ID, API_AUTH_STRING, SLACK_WEBHOOK_URL.
_FILLERS = frozenset({"id", "string", "value", "json", "pem", "raw", "url", "urls", "env"})
# Tokens of a vocabulary, and those that are counted.
_OF_TEXT = _words(
    "eos bos pad unk sep cls mask special image video audio next first last prompt start end stop "
    "think per each new text input output"
)
# In text a bare `key` is mostly one of a mapping.
_KEYS = _words(
    "api access secret private auth account signing encryption wandb hf hub runpod vast aws s3 "
    "openai anthropic comet mlflow swanlab ssh"
)
_NOTHING = _words(
    "true false yes no on off none null nil undefined empty example changeme required missing "
    "invalid unset"
)


def hide(text: str, mark: Mark) -> str:
    """The text with all that has the form of a secret replaced by `mark(label)`."""
    for shape in SHAPES:
        if any(hint in text for hint in shape.hints):
            text = shape.pattern.sub(partial(_hidden, mark=mark(shape.label)), text)
    return _unassigned(text, mark("value"))


def has_shape(text: str) -> bool:
    """Whether there is something in the text that has the form of a secret."""
    return hide(text, lambda label: "\0") != text


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of this name holds a secret: HF_TOKEN, apiKey, db-password."""
    parts = _parts(name)
    if not parts or parts[-1] not in STRONG | WEAK:
        return False
    return not (parts[-1] == "token" and len(parts) > 1 and parts[-2] in _OF_TEXT)


def is_secret_value(name: str, value: str) -> bool:
    """Whether the literal behind a name is a secret: the name says so and it is not trivial."""
    if not is_secret_name(name) or not _is_something(value):
        return False
    return _parts(name)[-1] in STRONG or _is_random(value) or len(value) >= 20


def _hidden(found: re.Match[str], *, mark: str) -> str:
    if "secret" not in found.re.groupindex and _INSIDE.search(
        found.string, max(0, found.start() - 2), found.start()
    ):
        return found[0]  # a part of a longer word
    return _with(found, mark)


def _with(found: re.Match[str], mark: str) -> str:
    if "secret" not in found.re.groupindex:
        return mark
    start, end = found.start("secret") - found.start(), found.end("secret") - found.start()
    return found[0][:start] + mark + found[0][end:]


def _unassigned(text: str, mark: str) -> str:
    """The text without the values that stand behind names that tell."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some letters of other alphabets become two
        lowered = "".join(c.lower() if c.isascii() else c for c in text)
    spans: list[tuple[int, int]] = []
    for ending in _ENDINGS:
        at = lowered.find(ending)
        while at >= 0:
            found = _REST.match(text, at)
            if found and _is_assigned(found):
                spans.append(found.span("secret"))
            at = lowered.find(ending, at + len(ending))
    parts, done = [], 0
    for start, end in sorted(spans):
        if start >= done:
            parts += [text[done:start], mark]
            done = end
    return "".join([*parts, text[done:]])


def _is_assigned(found: re.Match[str]) -> bool:
    before = found.string[max(0, found.start() - 48) : found.start()]
    start = len(before.rstrip(_NAME_CHARACTERS))
    front = before[start + 1 if before[:start].endswith("\\") else start :]
    told = _told_by(front + found["name"])
    if told is None or (found["sign"].isspace() and not front.startswith("--")):
        return False
    value = found["secret"]
    if told == "weak":
        return _is_random(value)
    # `password: expected text` is a sentence, `password: hunter2` is not.
    sure = bool(found["quote"]) or found["sign"] == "=" or not value.isalpha()
    return sure and _is_something(value)


@lru_cache(maxsize=4096)
def _told_by(name: str) -> Literal["strong", "weak"] | None:
    """How much a name in a text says of what stands behind it."""
    if not is_secret_name(name):
        return None
    parts = _parts(name)
    if parts[-1] in STRONG:
        return "strong"
    return None if parts[-1] == "key" and (len(parts) < 2 or parts[-2] not in _KEYS) else "weak"


def _parts(name: str) -> list[str]:
    parts = [part.lower() for part in _PART.findall(name)]
    while parts and (parts[-1] in _FILLERS or parts[-1].isdigit()):
        parts.pop()
    return parts


def _is_something(value: str) -> bool:
    """Not a number, a word that says nothing, a placeholder, or a path."""
    plain = value.strip().lower()
    if len(plain) < 4 or plain in _NOTHING or plain.startswith(("$", "<", "{", "[", "*", "~/")):
        return False
    return not re.fullmatch(r"[-+]?[\d.,_]+(e[-+]?\d+)?%?|(/[\w.-]+){2,}/?|\W+", plain)


def _is_random(value: str) -> bool:
    """Long, of letters and digits, and no run id or address."""
    if len(value) < 12 or _UUID.search(value) or "://" in value:
        return False
    return any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
