"""Secrets in a task file: warned about with their place, never told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.checking import check_files
from runner.secrets import is_secret
from runner.task_secrets import (
    block_name,
    named_secrets,
    registry_login,
    secret_findings,
    secrets_of,
)
from runner.taskfile import TaskFile, parse_task_file

FILE = """\
base_model: gpt2
hub_model_id: me/toy
hf_token: hf_FAKEFAKEFAKEFAKE
wandb_api_key: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b
special_tokens: {pad_token: "<pad>", eos_token: </s>}
datasets:
  - path: https://me:pa55word@example.org/rows.jsonl
runner:
  registry: -u me -p dckr_pat_0123456789abcdef ghcr.io
  env:
    MY_TOKEN: "hf_FAKEFAKEFAKEFAKE"
    DISCORD: "https://discord.com/api/webhooks/1/abc"
    DB_PASSWORD: hunter2
    HF_HUB_OFFLINE: "1"
    USE_TOKEN: "true"
    GIVEN_TOKEN:
"""


def _task(text: str = FILE) -> TaskFile:
    return parse_task_file(text, "t.yml")


def test_each_secret_is_warned_about_with_its_line() -> None:
    """H46: in our block and in axolotl's part, which axolotl publishes; a warning, not a stop."""
    found = {(each.key, each.line) for each in secret_findings(_task())}
    assert found == {
        ("env.MY_TOKEN", 11),
        ("env.DISCORD", 12),
        ("env.DB_PASSWORD", 13),
        ("registry", 9),
        ("hf_token", 3),
        ("wandb_api_key", 4),
        ("datasets.0.path", 7),
    }
    assert {each.level for each in secret_findings(_task())} == {"warn"}
    assert {each.code for each in secret_findings(_task())} == {"secret-in-file"}


def test_no_finding_tells_the_secret() -> None:
    """It is printed, logged and shown in the UI."""
    told = " ".join(each.sentence("t.yml") for each in secret_findings(_task()))
    for value in ("FAKEFAKE", "webhooks/1", "hunter2", "dckr_pat", "9f86d0", "pa55word"):
        assert value not in told
    assert "AXR_SECRET_MY_TOKEN" in told
    assert "axr-my-token" in told


def test_a_file_without_secrets_has_no_finding() -> None:
    """Vocabulary tokens, switches and numbers are none."""
    text = (
        "base_model: gpt2\nspecial_tokens: {pad_token: '<pad>', bos_token: <s>}\n"
        "tokens: ['<|im_start|>']\nhf_use_auth_token: true\nwandb_project: toy\n"
        "runner:\n  env: {TOKENIZERS_PARALLELISM: 'false', SORT_KEY: name, MAX_TOKENS: 4096}\n"
        "  registry: my-stored-login\n"
    )
    assert secret_findings(_task(text)) == []


@pytest.mark.parametrize("name", ["RUNPOD_API_KEY", "VAST_API_KEY", "PREFECT_API_KEY"])
@pytest.mark.parametrize("value", ["", "abc"])
def test_keys_of_the_installation_are_refused_in_env(name: str, value: str) -> None:
    """With one of them a pod could rent others, or run commands on the control machine."""
    (found,) = [
        each
        for each in secret_findings(_task(f"base_model: x\nrunner:\n  env:\n    {name}: {value}\n"))
        if each.level == "stop"
    ]
    assert (found.code, found.line) == ("account-key", 4)


def test_the_check_command_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every cloud, the local one too; the file can be used."""
    monkeypatch.setenv("AXR_AXOLOTL_ENV", str(tmp_path / "none"))
    file = tmp_path / "t.yml"
    file.write_text("learning_rate: 1e-4\n" + FILE)
    assert check_files([file], as_json=True, offline=True) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["verdict"] == "warn"
    assert "secret-in-file" in {each["code"] for each in result["findings"]}


def test_the_secrets_of_a_file_are_known_by_name() -> None:
    """So that they are scrubbed; ordinary values of env are not."""
    assert set(secrets_of(_task().settings)) == {"MY_TOKEN", "DISCORD", "DB_PASSWORD", "registry"}


def test_names_without_values_are_asked_for() -> None:
    """And `$NAME` as the password of a registry's login."""
    assert named_secrets(_task().settings) == ("GIVEN_TOKEN",)
    settings = _task("a: b\nrunner:\n  registry: -u me -p $REG ghcr.io\n  env: {A: }\n").settings
    assert named_secrets(settings) == ("A", "REG")
    assert registry_login(settings, {"REG": "s3cret"}) == "-u me -p s3cret ghcr.io"
    assert registry_login(settings, {}) == "-u me -p $REG ghcr.io"
    assert secrets_of(settings) == {}


def test_block_names_are_those_that_prefect_allows() -> None:
    """Small letters, digits and dashes."""
    assert block_name("MY_TOKEN_2") == "axr-my-token-2"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("apiKey", True),
        ("db-password", True),
        ("SLACK_WEBHOOK_URL", True),
        ("PREFECT_API_AUTH_STRING", True),
        ("GH_PAT", True),
        ("PATH", False),
        ("MONKEY", False),
        ("TOKENIZERS_PARALLELISM", False),
        ("EOS_TOKEN", False),
        ("MAX_TOKENS", False),
        ("SSH_AUTH_SOCK", False),
        ("KEY_FILE", False),
    ],
)
def test_names_that_tell(name: str, secret: bool) -> None:
    """Word by word: a monkey is no key."""
    assert is_secret(name, "some value") is secret
