"""Tokens: only whole, signed, living ones are worth anything."""

import stat
from pathlib import Path

import pytest

from runner.tokens import Token, gateway_key, pod_token, push_token, read_token

KEY = b"k" * 32
RUN = "0b8f6a54-5b1c-4a52-9d0e-0d5a3c1f7e11"
NOW = 1_800_000_000.0


def test_a_pods_token_names_its_run_queue_and_worker() -> None:
    """All that a pod may touch follows from its run."""
    token = read_token(KEY, pod_token(KEY, RUN.upper(), NOW + 60), NOW)
    assert token == Token("pod", RUN, int(NOW) + 60)
    assert (token.run, token.queue, token.worker) == (RUN, f"axr-{RUN}", f"pod-{RUN}")


def test_a_pushers_token_names_its_repository_and_no_run() -> None:
    """The two kinds can't stand for each other."""
    token = read_token(KEY, push_token(KEY, "me/my.configs", NOW + 60), NOW)
    assert token == Token("push", "me/my.configs", int(NOW) + 60)
    with pytest.raises(AssertionError):
        _ = token.queue


def test_a_token_ends_at_its_end() -> None:
    """The second of the end is too late."""
    text = pod_token(KEY, RUN, NOW + 60)
    assert read_token(KEY, text, NOW + 59)
    assert read_token(KEY, text, NOW + 60) is None


def test_every_changed_sign_makes_a_token_worthless() -> None:
    """Claims and signature hold together, and the version is part of what is signed."""
    text = pod_token(KEY, RUN, NOW + 60)
    for at in range(len(text)):
        other = "A" if text[at] != "A" else "B"
        assert read_token(KEY, text[:at] + other + text[at + 1 :], NOW) is None, at


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "axr1", "axr1..", "axr1.e30.", "ä.ö.ü", "axr1.ä.ö", "axr1." + "x" * 9999],
)
def test_what_is_no_token_is_none(text: str) -> None:
    """Anybody can send anything; nothing of it raises."""
    assert read_token(KEY, text, NOW) is None


def test_another_key_signs_other_tokens() -> None:
    """A new key ends all tokens."""
    assert read_token(b"o" * 32, pod_token(KEY, RUN, NOW + 60), NOW) is None


@pytest.mark.parametrize("name", ["me", "me/", "/x", "a/b/c", "me/x y", "../x", "me/*"])
def test_a_push_token_is_for_one_repository(name: str) -> None:
    """Neither a pattern nor a path."""
    with pytest.raises(ValueError, match="owner/name"):
        push_token(KEY, name, NOW)


def test_the_key_is_made_once_for_the_owner_only(tmp_path: Path) -> None:
    """Who comes second reads the first one's."""
    file = tmp_path / "home" / "gateway.key"
    key = gateway_key(file)
    assert len(key) == 32
    assert gateway_key(file) == key
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == ["gateway.key"]


@pytest.mark.parametrize("content", ["", "short", "00" * 31])
def test_a_key_file_without_a_key_stops_the_gateway(tmp_path: Path, content: str) -> None:
    """An empty key would sign for everybody."""
    file = tmp_path / "gateway.key"
    file.write_text(content)
    with pytest.raises(SystemExit, match="holds no key"):
        gateway_key(file)
