"""Scrubbing: every secret goes, ordinary text stays, and twice is once."""

from __future__ import annotations

import base64
import json
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner import secrets
from runner.attempts import AttemptFacts, from_message, to_message
from runner.notice import compose
from runner.secrets import known, learn, scrub, scrub_file, scrub_plain

ALNUM = string.ascii_letters + string.digits
HF = "hf_" + "aB3dE" * 7
HEX40 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"
UUID = "0bd1c5a4-6f4e-4d53-9c0b-2f6f5b1c9a77"
ENVIRONMENT = {
    "HF_TOKEN": HF,
    "WANDB_API_KEY": HEX40,
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "PREFECT_API_AUTH_STRING": "admin:correct-horse",
    "DB_PASSWORD": 'say "hi" & go\nhome',
    "AXR_NOTIFY_URLS": "discord://123456789012345678/w3bh00kT0kenOfTheRoom mailto://a:p4ssw0rd1@b.org",
    "SHORT_TOKEN": "1",
    "FLAG_SECRET": "true",
    "WORD_KEY": "training",
    "SSH_AUTH_SOCK": "/tmp/ssh-agent/socket",
    "KEY_FILE": "/etc/keys/of-the-house.pem",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_ENDPOINT": "https://huggingface.co",
    "HOME": "/home/trainer",
}


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test teaches, it teaches to itself."""
    monkeypatch.setattr(secrets, "_learnt", {})


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"])
@pytest.mark.parametrize(
    "around",
    ["{}", "login with {}.", "token={}", '"{}"', "a{}b", "https://x.org/?k={}&n=1", "({})"],
)
def test_values_of_the_environment_are_replaced_by_their_names(name: str, around: str) -> None:
    """Wherever they stand, also inside a longer word."""
    clean = scrub(around.format(ENVIRONMENT[name]), ENVIRONMENT)
    assert ENVIRONMENT[name] not in clean
    assert f"[secret {name}]" in clean


@pytest.mark.parametrize(
    "form",
    [
        str,
        json.dumps,
        lambda value: json.dumps(json.dumps(value)),
        lambda value: json.dumps(value, ensure_ascii=False),
        lambda value: quote(value, safe=""),
        repr,
        lambda value: base64.b64encode(value.encode()).decode(),
    ],
)
@pytest.mark.parametrize("name", ["DB_PASSWORD", "PREFECT_API_AUTH_STRING"])
def test_a_value_is_found_in_the_forms_that_texts_give_it(
    name: str, form: Callable[[str], str]
) -> None:
    """JSON in a state message, an address in an error, a header."""
    clean = scrub(f"before {form(ENVIRONMENT[name])} after", ENVIRONMENT)
    assert f"[secret {name}]" in clean
    assert "correct-horse" not in clean
    assert "& go" not in clean


def test_the_parts_of_an_address_that_open_it_are_secret_too() -> None:
    """A service's own error names the webhook, not the Apprise URL."""
    said = "POST /api/webhooks/123456789012345678/w3bh00kT0kenOfTheRoom 404; login p4ssw0rd1 failed"
    clean = scrub(said, ENVIRONMENT)
    assert "w3bh00k" not in clean
    assert "p4ssw0rd1" not in clean


@pytest.mark.parametrize(
    "text",
    [
        "step 1 of 1, flag true, training for 24 hours",
        "1" * 40,
        "socket /tmp/ssh-agent/socket, key in /etc/keys/of-the-house.pem",
        "https://huggingface.co/meta-llama/Llama-3.2-1B",
    ],
)
def test_short_and_ordinary_values_stay(text: str) -> None:
    """A variable that is called a secret and holds `1` hides no digits."""
    assert scrub(text, ENVIRONMENT) == text


def test_short_values_are_hidden_behind_their_names() -> None:
    """There nobody takes them for anything else."""
    clean = scrub("DB_PASSWORD=abc1 password: 'pet' --password hunter2 x", {})
    assert clean == "DB_PASSWORD=[secret value] password: 'pet' --password [secret value] x"


FORMS = [
    HF,
    "hf_FAKEFAKEFAKEFAKE",
    "rpa_" + "A1B2C3D4" * 4,
    "wandb_v1_" + "Ab1-_" * 8,
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11ABCDE_" * 4,
    "glpat-" + "x1Y2z3" * 4,
    "xoxb-1234567890-abcdefghij",
    "sk-proj-" + "Ab12" * 8,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "axr1.eyJraW5kIjoicG9kIn0abc.Zm9vYmFyYmF6cXV4Zm9vYmFy",
    "Bearer 3f2a9c0d1e2f4a5b",
    "Authorization: Basic YWRtaW46c2VjcmV0",
    "https://discord.com/api/webhooks/1/abc",
    "https://hooks.slack.com/services/T0000/B0000/XXXX",
    f"wandb_api_key: {HEX40}",
    f"WANDB_API_KEY={HEX40}",
    '{"api_key": "' + HEX40 + '"}',
    "aws_session_token=IQoJb3JpZ2luX2VjEJr//////////wEa",
    "postgresql://user:pa55@db/prefect",
    "https://x-access-token:0123@github.com/a/b",
    "--hub-token abcdef0123456789",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAA\n-----END OPENSSH PRIVATE KEY-----",
]


@pytest.mark.parametrize("text", FORMS)
def test_what_has_the_form_of_a_secret_goes_whoever_its_owner_is(text: str) -> None:
    """Nobody told us these values."""
    clean = scrub(f"said: {text} and so on", {})
    assert "[secret " in clean
    tell = max(text.replace("\n", " ").replace('"', " ").split(), key=len)
    assert tell not in clean
    assert clean.startswith("said: ")
    assert clean.endswith(" and so on")


ORDINARY = [
    f"commit {HEX40} of run {UUID}",
    "sha256 " + "ab12" * 16 + " checkpoint-200/model.safetensors",
    f"artifact key: report-{UUID}",
    f"idempotency_key={UUID}:train:1 cache_key={HEX40}",
    "eos_token: </s> pad_token: <pad> bos_token_id=1 special_tokens: {} pad_token: '[PAD]'",
    "tokens_per_second_per_gpu: 1234.5, num_input_tokens_seen=55, total_tokens: 1e9",
    "image_token: AutoProcessor2Image, tokenizer_type: AutoTokenizer",
    "KeyError: 'learning_rate'; sort_key=lambda; key: value; keyboard: us-intl-104keys-x1",
    "expected a password: expected text, found nothing; the secret: patience",
    "hf_quantizationconfig hf_transfer hf_hub_download task-of-2024-with-a-long-name-Here",
    "http://127.0.0.1:4200/api ws://host:80/x@y user@example.org git@github.com:a/b.git",
    "Bearer authentication is needed; password=null token: true secret=${SECRET} key=<your key>",
    "hub_token=<HUB_TOKEN>, push_to_hub_token=None, use_auth_token: false, token_file=/a/b/t.txt",
    "{'loss': 2.3456, 'grad_norm': 0.5, 'learning_rate': 9.5e-05, 'epoch': 0.31}",
    "attempt 1 · step 12/40 · loss 3.4102 · 0:21 left",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_what_runs_write_all_the_time_stays(text: str) -> None:
    """Hashes, ids, tokens of a vocabulary, metrics, our own messages."""
    assert scrub(text, ENVIRONMENT) == text.replace(HEX40, "[secret WANDB_API_KEY]")
    assert scrub(text, {}) == text


_piece = st.one_of(
    st.sampled_from(FORMS + ORDINARY + list(ENVIRONMENT.values())),
    st.sampled_from(["[secret HF_TOKEN]", "[secret value]", "[secret ", "]", "=", '"', "\\", "\n"]),
    st.text(max_size=12),
)


@given(st.lists(_piece, max_size=8).map("".join))
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    """A message passes several exits."""
    once = scrub(text, ENVIRONMENT)
    assert scrub(once, ENVIRONMENT) == once


_value = st.one_of(
    st.text(ALNUM, min_size=20, max_size=60).filter(lambda value: not value.isdigit()),
    st.text(min_size=20, max_size=60).filter(
        lambda value: value == value.strip() and len(set(value)) > 8 and "\n" not in value
    ),
)


@given(_value, st.text(max_size=30), st.text(max_size=30))
def test_no_text_around_it_keeps_a_secret(value: str, before: str, after: str) -> None:
    """The value that a variable holds is gone, whatever stands beside it."""
    if value in "[secret MY_TOKEN]" or value.startswith("/"):
        return
    clean = scrub(f"{before}{value}{after}", {"MY_TOKEN": value})
    assert value not in clean.replace("[secret MY_TOKEN]", "\0")


_hash = st.text("0123456789abcdef", min_size=7, max_size=64)
_word = st.one_of(
    st.uuids().map(str),
    _hash,
    _hash.map("checkpoint-200/{}.safetensors".format),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(
        ["loss", "step", "commit", "sha256:", "run=", "tokens:", "epoch", "of", "'eval_loss':"]
    ),
    st.text(string.ascii_lowercase, max_size=14),
    st.datetimes().map(str),
)


@given(st.lists(_word, max_size=20).map(" ".join))
def test_hashes_ids_numbers_and_words_are_not_damaged(text: str) -> None:
    """Commits, checkpoints and runs are known by them."""
    environment = {name: value for name, value in ENVIRONMENT.items() if value not in text.split()}
    assert scrub(text, environment) == text


@given(st.lists(st.sampled_from(FORMS + ORDINARY), min_size=1, max_size=4), st.booleans())
def test_facts_come_back_from_a_scrubbed_message(parts: list[str], twice: bool) -> None:
    """The line of JSON at the end stays JSON, also when the whole message is scrubbed again."""
    told = "\n".join(parts)
    facts = AttemptFacts(1, "crash", told, note=told, tail=(told, told[:30]), last_step=3)
    message = to_message(facts)
    back = from_message(scrub(message) if twice else message)
    assert back is not None
    assert (back.n, back.outcome, back.last_step) == (1, "crash", 3)
    assert back.reason == scrub(told)


def test_a_pod_knows_the_secrets_that_its_run_was_given_by_name() -> None:
    """Their names need not say what they are."""
    environment = {
        "GREETING": "sesame-open-1",
        "AXR_SECRETS": "GREETING,OTHER",
        "HELLO": "worlds-1",
    }
    assert known(environment) == {"GREETING": "sesame-open-1"}
    assert scrub("say sesame-open-1, worlds-1", environment) == "say [secret GREETING], worlds-1"


def test_what_the_control_side_keeps_for_runs_is_secret_there_too() -> None:
    """Whatever its name says; it is called as runs call it."""
    environment = {"AXR_SECRET_GREETING": "sesame-open-1", "AXR_SECRETS": "sesame"}
    assert scrub("say sesame-open-1", environment) == "say [secret GREETING]"
    assert scrub("sesame", environment) == "sesame"


def test_what_was_learnt_is_scrubbed() -> None:
    """The key of an account that is kept in a block."""
    assert scrub("key vast-account-9", {}) == "key vast-account-9"
    learn({"VAST_API_KEY": "vast-account-9", "EMPTY": ""})
    assert scrub("key vast-account-9", {}) == "key [secret VAST_API_KEY]"


def test_mappings_and_lists_are_scrubbed_through() -> None:
    """As facts are; numbers and keys stay."""
    plain = {"reason": f"no {HF}", "tail": (HF, 1), "steps": [{"loss": 2.0, "at": None}]}
    assert scrub_plain(plain, {}) == {
        "reason": "no [secret hf-token]",
        "tail": ("[secret hf-token]", 1),
        "steps": [{"loss": 2.0, "at": None}],
    }


@pytest.mark.parametrize("value", [HF, "short-one1"])
def test_a_secret_on_a_line_of_its_own_is_found_in_json(value: str) -> None:
    """There the end of the line before is a letter."""
    text = json.dumps(f"using\n{value}\tas told")
    assert value not in scrub(text, {"SOME_TOKEN": "short-one1"})


def test_a_file_is_scrubbed_in_its_place(tmp_path: Path) -> None:
    """To the byte, but for the secrets; one without any is not touched."""
    log = tmp_path / "trainer.log"
    log.write_bytes(b"1%|\r2%|\r\n\xff " + HF.encode() + b"\n")
    assert scrub_file(log, {})
    assert log.read_bytes() == b"1%|\r2%|\r\n\xff [secret hf-token]\n"
    assert not scrub_file(log, {})
    assert [each.name for each in tmp_path.iterdir()] == ["trainer.log"]


def test_notices_are_scrubbed_before_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a token at the end of a cut line would be one too many characters of it."""
    monkeypatch.setenv("MY_TOKEN", "abcdefgh-0123-ijklmnop")
    notice = compose(
        "failed",
        run="r",
        task="t.yml",
        reason="x" * 385 + " abcdefgh-0123-ijklmnop",
        facts={"model": "https://me:pw12@x.org"},
        log=f"using {HF}\n@everyone abcdefgh-0123-ijklmnop",
    )
    for part in ("abcdefgh", HF, "pw12"):
        assert part not in notice.body


def _log() -> Iterator[str]:
    for n in range(7000):
        yield (
            f"{{'loss': 2.{n}, 'grad_norm': 0.5, 'learning_rate': 9.5e-05, 'tokens_per_second': "
            f"{n}.5, 'epoch': 0.31, 'num_tokens': {n}}} eos_token: </s> key: value of step {n}\n"
        )


def test_a_megabyte_is_scrubbed_in_no_time() -> None:
    """Less than 50 ms of a processor for a log of 1 MB that holds secrets."""
    text = "".join(_log())[:1_000_000]
    text = f"{text[:500_000]}\nlogged in with {HF}\n{text[500_000:]}"
    assert HF not in scrub(text, ENVIRONMENT)
    spent = []
    for _ in range(5):
        began = time.process_time()
        scrub(text, ENVIRONMENT)
        spent.append(time.process_time() - began)
    assert min(spent) < 0.1, "half of that on a machine of its own"
