"""Secrets in files that are published, beside what tests/integration/test_publishing.py sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from pod.publish import clean as module
from pod.publish.clean import clean
from tests.checkpoints import safetensors

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
KNOWN = {"HF_TOKEN": TOKEN}


def test_files_without_secrets_stay_as_they_are(tmp_path: Path) -> None:
    """Bytes, times and links: nothing is written."""
    files = {
        "config.json": b'{"b":1,\n"a":  2.50, "x": NaN}',
        "merges.txt": "ab c\nä ö\n".encode(),
        "x.bin": bytes(range(256)),
        "model.safetensors": safetensors(),
        "short.safetensors": b"abc",
        "notes.md": b"line\r\nline\r\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    before = {name: (tmp_path / name).stat().st_ino for name in files}
    assert clean(tmp_path, KNOWN) == []
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    assert {name: (tmp_path / name).stat().st_ino for name in files} == before


def test_only_the_header_of_weights_is_looked_at(tmp_path: Path) -> None:
    """Numbers are no words, and 140 GB of them take long."""
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(safetensors(TOKEN.encode().ljust(64, b"\0"), name=f"w.{TOKEN}"))
    assert clean(tmp_path, KNOWN) == ["model.safetensors"]
    data = weights.read_bytes()
    assert data.count(TOKEN.encode()) == 1
    assert b'"w.' + b"x" * len(TOKEN) + b'"' in data


@pytest.mark.parametrize("offset", [-20, -1, 0, 1])
def test_a_secret_across_two_blocks_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """Large files are read in pieces; also where each piece has one."""
    monkeypatch.setattr(module, "BLOCK", 1000)
    monkeypatch.setattr(module, "OVERLAP", 100)
    data = bytearray(b"\0" * 4000)
    for start in (1000 + offset, 1100 + offset, 2000 + offset):
        data[start : start + len(TOKEN)] = TOKEN.encode()
    (tmp_path / "x.bin").write_bytes(data)
    assert clean(tmp_path, KNOWN) == ["x.bin"]
    found = (tmp_path / "x.bin").read_bytes()
    assert found == bytes(data).replace(TOKEN.encode(), b"x" * len(TOKEN))


def test_a_secret_as_a_key_of_json_goes_too(tmp_path: Path) -> None:
    """Where values are scrubbed one by one, keys are not."""
    (tmp_path / "a.json").write_text(f'{{"{TOKEN}": "a {TOKEN}"}}')
    clean(tmp_path, KNOWN)
    text = (tmp_path / "a.json").read_text()
    assert TOKEN not in text
    assert "a [secret HF_TOKEN]" in text
