"""Reading task files: what is accepted, and one clear line for everything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as some

from runner.errors import ConfigError
from runner.taskfile import TaskFile, TaskFileError, parse_task_file, read_task_file

BASE = "base_model: me/model\nlearning_rate: 2e-5\n"


def parse(text: str, *, base: str = BASE) -> TaskFile:
    """A task file of the base keys and this text below them."""
    return parse_task_file(base + text, "run.yml")


def refusal(text: str, *, base: str = BASE) -> str:
    """The message with which the text is refused."""
    with pytest.raises(ConfigError) as caught:
        parse(text, base=base)
    return str(caught.value)


def test_block_and_axolotl_keys_are_told_apart() -> None:
    """The block becomes settings; all else is axolotl's, values as YAML gives them (H01)."""
    task = parse("runner: {max_price_per_hour: 2e0, max_hours: 1e1}\nepochs: 3\n")
    assert task.settings.max_price_per_hour == 2.0
    assert task.settings.max_hours == 10.0
    assert dict(task.axolotl) == {"base_model": "me/model", "learning_rate": "2e-5", "epochs": 3}
    assert task.warnings == ()


@pytest.mark.parametrize(
    "block", ["", "runner:\n", "runner: ~\n", "runner: {}\n", "runner: {gpu: }\n"]
)
def test_no_block_and_an_empty_one_mean_the_defaults(block: str) -> None:
    """Nothing and null are the defaults, never an error and never a lifted limit."""
    assert parse(block).settings == parse("").settings
    assert parse("runner: {max_hours: null}\n").settings.max_hours == 24


def test_older_block_name_means_runpod() -> None:
    """`runpod:` without a cloud rents from RunPod; with one, the cloud holds."""
    assert parse("runpod: {gpu: A}\n").settings.cloud == ["runpod"]
    assert parse("runpod:\n").settings.cloud == ["runpod"]
    assert parse("runpod: {cloud: vast}\n").settings.cloud == ["vast"]


def test_every_key_of_the_proof_of_concept_is_read() -> None:
    """A file of the proof of concept runs as it is."""
    task = parse(
        """runpod:
  entry: ./setup.sh
  gpu: NVIDIA RTX A5000
  pod_type: INTERRUPTABLE
  cloud_type: SECURE
  max_bid_per_gpu: 1.0
  template_id: 0123
  gpu_count: 1
  container_disk_in_gb: 30
  volume_in_gb: 100
  volume_mount_path: /workspace
  min_vcpu_count: 2
  min_memory_in_gb: 15
  min_download: 500
  min_upload: 500
  stop_after: -1
  terminate_after: 86400
  one_shot: true
  env: {HF_HOME: /workspace/hf}
  deepspeed: false
  debug: false
  log_eval: true
  axolotl_git: https://github.com/axolotl-ai-cloud/axolotl
  axolotl_git_branch: main
  axolotl_root: /workspace/axolotl
  prepare_ds_only: false
"""
    )
    assert task.settings.spot
    assert task.settings.template_id == "0123"
    assert task.settings.stop_after == -1
    assert task.warnings == ()


def test_block_reads_scalars_as_they_are_written() -> None:
    """YAML 1.1 would read these as 10 times 8, a float, a truth value and the key true."""
    task = parse(
        "runner:\n  volume_in_gb: 010\n  spot: yes\n  notify: {on: [failed]}\n"
        "  env: {V: 1.10, D: 2024-01-02, N: no}\n"
    )
    assert task.settings.volume_in_gb == 10
    assert task.settings.spot
    assert task.settings.notify.on == ["failed"]
    assert task.settings.env == {"V": "1.10", "D": "2024-01-02", "N": "no"}
    assert [each.code for each in task.warnings] == ["yaml-1.1"]


def test_environment_bytes_survive_the_file() -> None:
    """Quotes, newlines, backslashes, null and true as the case asks (H18)."""
    task = parse(
        """runner:
  env:
    NOTE: 'say "hi"'
    MULTI: "line1\\nline2"
    WINPATH: 'C:\\new'
    EMPTY:
    FLAG: true
"""
    )
    assert task.settings.env == {
        "NOTE": 'say "hi"',
        "MULTI": "line1\nline2",
        "WINPATH": r"C:\new",
        "EMPTY": None,
        "FLAG": "true",
    }


def test_block_may_use_anchors_and_merges() -> None:
    """`<<` works inside the block, and what is written beside it holds."""
    task = parse("common: &c {A: x, B: y}\nrunner:\n  env:\n    <<: *c\n    B: z\n")
    assert task.settings.env == {"A": "x", "B": "z"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.yml: the file holds no settings — "),
        ("# only\n# comments\n", "run.yml: the file holds no settings — "),
        ("---\n", "run.yml: the file holds no settings — "),
        ("- a\n- b\n", "run.yml:1:1: the file is not a mapping at its top level — "),
        ("hello\n", "run.yml:1:1: the file is not a mapping at its top level — "),
        ("!!set {a}\n", "run.yml:1:1: the file is not a mapping at its top level — "),
        ("a: 1\n---\nb: 2\n", "run.yml:2:1: a second YAML document (---) — "),
        ("a: /data/x\n    type: y\n", "run.yml:2:9: a `key: value` where none can stand "),
        ("a:\n\t- b\n", "run.yml:2:1: a tab where YAML wants spaces — indent with spaces"),
        ('a: 1\nb: "x\nc: 2\n', "run.yml:2:4: a quote that is never closed — "),
        ("a: [1, 2\nb: 3\n", "run.yml:2:2: a [ or { that is not closed properly "),
        ("a: *x\n", "run.yml:1:4: found undefined alias 'x' — "),
        ("a: @x\n", "run.yml:1:4: found character '@' that cannot start any token — "),
        ("a: !!python/name:os.system\n", "run.yml:1:4: a tag that is not allowed "),
        ("a: {{ env.OUT }}/x\n", "run.yml:1:17: a line that fits no mapping or list above it "),
        ("? [a]\n: b\n", "run.yml:1:3: a list or mapping as a key — "),
        ("a: \x07\n", "run.yml:1:4: the character U+0007 is not allowed in YAML — remove it"),
        ("a: 2024-99-99\n", "run.yml: a value that can't be read (month must be in 1..12) — "),
        ('a: "\\UFFFFFFFF"\n', "run.yml: a value that can't be read "),
        ("on: push\n", "run.yml:1:1: the key on is read as bool, not as text — "),
        ("a: &a [*a]\n", "run.yml:1:8: *a stands inside its own anchor — "),
        ("a: " + "[" * 100, "run.yml:1:43: nested deeper than 40 levels — "),
        ("a: 1" + ":1" * 500 + "\n", "run.yml:1:4: a number of more than 400 digits — "),
    ],
)
def test_bad_yaml_is_one_line_with_its_place(text: str, message: str) -> None:
    """Whatever is wrong with the YAML is said with file, line and column (H03)."""
    found = refusal(text, base="")
    assert found.startswith(message)
    assert "\n" not in found


@pytest.mark.parametrize("link", ["[{}]", "{{<<: [{}]}}"])
def test_alias_bombs_are_refused(link: str) -> None:
    """Aliases of aliases, merged or not, are counted before they are written out."""
    lines = ["x0: &x0 {k: v}"]
    for n in range(1, 9):
        body = link.format(",".join([f"*x{n - 1}"] * 10))
        lines.append(f"x{n}: &x{n} {body}")
    assert "more than 200000 values" in refusal("\n".join(lines))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("runner: 5\n", "run.yml:3:1: runner: expected a mapping, found 5 — "),
        ("runner: [a]\n", "run.yml:3:1: runner: expected a mapping, found a list — "),
        (
            "runner: {max_pric_per_hour: 1}\n",
            "run.yml:3:10: runner.max_pric_per_hour: unknown key — did you mean max_price_",
        ),
        (
            "runner: {patience: 1}\n",
            "run.yml:3:10: runner.patience: unknown key — it belongs under runner.spike",
        ),
        ("runner: {zzz: 1}\n", "run.yml:3:10: runner.zzz: unknown key — known here: cloud, gpu"),
        (
            "runner:\n  spike:\n    patience: abc\n",
            "run.yml:5:5: runner.spike.patience: expected a whole number of at least 1, "
            "found 'abc' — ",
        ),
        (
            "runner:\n  max_hours: 1:30\n",
            "run.yml:4:3: runner.max_hours: expected a number above 0, "
            "found '1:30' — correct it, or remove the key for the default (24)",
        ),
        (
            "runner:\n  gpu: [a, [b]]\n",
            "run.yml:4:12: runner.gpu[1]: expected text, found a list — ",
        ),
        ("runner:\n  spike: 5\n", "run.yml:4:3: runner.spike: expected a mapping, found 5 — "),
        ("runner:\n  env: [a]\n", "run.yml:4:3: runner.env: expected a mapping, found a list — "),
        (
            "runner:\n  env: {A: !!binary aGk=}\n",
            "run.yml:4:12: runner.env.A: the tag binary is not allowed — ",
        ),
        ("runner:\n  env: !x {A: b}\n", "run.yml:4:8: a tag that is not allowed "),
        (
            "runner:\n  gpu: a\n  gpu: b\n",
            "run.yml:5:3: runner.gpu stands on line 4 and again on line 5; ",
        ),
        (
            "runner:\n  env:\n    A: 1\n    B: 2\n    A: 3\n",
            "run.yml:7:5: runner.env.A stands on line 5 and again on line 7; ",
        ),
        (
            "runner: {gpu: A}\nx: 1\nrunner: {gpu: B}\n",
            "run.yml:5:1: runner on line 5 comes after runner on line 3; ",
        ),
        (
            "runner: {}\nrunpod: {}\n",
            "run.yml:4:1: runpod on line 4 comes after runner on line 3; ",
        ),
        ("x: &r {gpu: A}\nrunner: *r\n", "run.yml:4:9: runner: an alias would leave its settings "),
        ("x: &r {runner: {gpu: A}}\n<<: *r\n", "run.yml: runner: comes in through << — "),
        (
            "runer: {gpu: A, max_hours: 1}\n",
            "run.yml:3:1: unknown block runer: its settings would not be read",
        ),
        (
            "loss_watchdog_threshold: abc\n",
            "run.yml:3:1: loss_watchdog_threshold: expected a number, found 'abc' — ",
        ),
        (
            "loss_watchdog_automatic_resume: 3\n",
            "run.yml:3:1: loss_watchdog_automatic_resume: expected true or false, found 3 — ",
        ),
        (
            "auto_find_batch_size: true\n",
            "run.yml:3:1: auto_find_batch_size: after an out-of-memory error it starts over ",
        ),
    ],
)
def test_wrong_settings_are_one_line_with_path_and_place(block: str, message: str) -> None:
    """Wrong keys and types, duplicates (H02) and misspelled blocks (H04) stop before renting."""
    found = refusal(block)
    assert found.startswith(message)
    assert "\n" not in found


def test_all_faults_are_reported_at_once() -> None:
    """Several faults are several lines, in the order of the file, each also as a finding."""
    with pytest.raises(TaskFileError) as caught:
        parse("runner: {max_hours: 0, cloud: moon}\noutput_dir: ~/out\n")
    lines = str(caught.value).splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "runner.max_hours",
        "runner.cloud",
        "output_dir",
    ]
    assert [finding.level for finding in caught.value.findings] == ["stop"] * 3


@pytest.mark.parametrize(
    ("line", "key", "shown"),
    [
        ("output_dir: $PATH_STORAGE/out", "output_dir", "$PATH_STORAGE"),
        ("output_dir: ${HOME}/out", "output_dir", "${HOME}"),
        ("output_dir: ~/out", "output_dir", "~"),
        ('output_dir: "{{ env.OUT }}/out"', "output_dir", "{{ env.OUT }}"),
        ("dataset_prepared_path: $X", "dataset_prepared_path", "$X"),
        ("base_model_config: ~me/m", "base_model_config", "~"),
        ("datasets: [{path: $D/x.jsonl}]", "datasets[0].path", "$D"),
        ("datasets: [{path: json, data_files: [a, $D]}]", "datasets[0].data_files[1]", "$D"),
        ("test_datasets: [{path: ~/x}]", "test_datasets[0].path", "~"),
        ("pretraining_dataset: $P", "pretraining_dataset", "$P"),
    ],
)
def test_placeholders_in_paths_stop_the_run(line: str, key: str, shown: str) -> None:
    """Nobody expands them, so weights would go to a folder of that name (H62)."""
    assert f": {key}: {shown} is not expanded" in refusal(line)


def test_axolotl_duplicates_are_a_warning_with_both_lines() -> None:
    """A harmless duplicate must still run (H02); inside lists too."""
    task = parse("output_dir: a\nx: 1\noutput_dir: b\ndatasets:\n  - path: a/b\n    path: a/c\n")
    assert task.axolotl["output_dir"] == "b"
    first, second = task.warnings
    assert first.level == "warn"
    assert first.key == "output_dir"
    assert "on line 3 and again on line 5" in first.message
    assert second.key == "datasets[0].path"
    assert task.spans["output_dir"] == (5, 5)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("save_strategy: no", "yaml-1.1"),
        ("max_price_per_hour: 1", "misplaced"),
        ("hub_private_repo: false", "misplaced"),
        ("runner: {merge: true}", "nothing-to-merge"),
    ],
)
def test_likely_slips_are_warnings(line: str, code: str) -> None:
    """What is probably not meant is said, and the run goes on (H04)."""
    assert [each.code for each in parse(line).warnings] == [code]


def test_watchdog_keys_feed_the_detector() -> None:
    """axolotl's threshold and patience are taken over, text numbers as numbers (H01, H27, H28)."""
    task = parse("loss_watchdog_threshold: 5e0\nloss_watchdog_patience: 2\n")
    assert task.settings.spike.detector_arguments() == {"threshold": 5.0, "threshold_patience": 2}


def test_block_wins_over_watchdog_keys() -> None:
    """A threshold of the block holds; a patience without any threshold means nothing."""
    keys = "loss_watchdog_threshold: 5\nloss_watchdog_patience: 2\n"
    task = parse(keys + "runner: {spike: {threshold: 7, threshold_patience: 4}}\n")
    assert task.settings.spike.detector_arguments() == {"threshold": 7, "threshold_patience": 4}
    assert parse("loss_watchdog_patience: 2\n").settings.spike.detector_arguments() == {}


@pytest.mark.parametrize(
    ("text", "enabled", "warnings"),
    [
        ("loss_watchdog_automatic_resume: false\n", False, 0),
        ("loss_watchdog_automatic_resume: true\n", True, 0),
        ("loss_watchdog_automatic_resume: false\nrunner: {resume: {max_attempts: 2}}\n", False, 0),
        ("loss_watchdog_automatic_resume: true\nrunner: {resume: false}\n", False, 1),
    ],
)
def test_automatic_resume_switches_resume(text: str, enabled: bool, warnings: int) -> None:
    """The key switches resume; the block wins, and a contradiction is said."""
    task = parse(text)
    assert task.settings.resume.enabled is enabled
    assert len(task.warnings) == warnings


def test_spans_and_places_point_into_the_file() -> None:
    """Spans end at the last line of the value, not at the comments behind it."""
    task = parse("runner:\n  gpu: A\n  # c\n# d\ndatasets:\n  - path: a/b\n    type: alpaca\n")
    assert task.spans["base_model"] == (1, 1)
    assert task.spans["runner"] == (3, 4)
    assert task.spans["datasets"] == (7, 9)
    assert task.place("datasets", 0, "type") == (9, 5)
    assert task.place("datasets", 5) == (7, 1)
    assert task.place("nothing") == (1, 1)


def test_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    """Files from Windows editors are read as any other."""
    path = tmp_path / "a.yml"
    path.write_bytes(b"\xef\xbb\xbfbase_model: x\r\nrunner:\r\n  gpu: A\r\n")
    task = read_task_file(path)
    assert task.settings.gpu == ["A"]
    assert task.text.startswith("base_model: x\r\n")


def test_names_count_from_the_root(tmp_path: Path) -> None:
    """With a root, relative paths and names start there."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "a.yml").write_text(BASE)
    task = read_task_file(Path("configs/a.yml"), root=tmp_path)
    assert task.name == "configs/a.yml"
    assert read_task_file(tmp_path / "configs" / "a.yml", root=tmp_path).name == "configs/a.yml"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lorra.yml", "lorra.yml: there is no such file — did you mean lora.yml"),
        (
            "zzz.txt",
            "zzz.txt: there is no such file — did you mean big.yml or latin.yml or lora.yml?",
        ),
        ("none/lora.yml", "none/lora.yml: there is no such folder — check the path"),
        ("folder", "folder: this is a folder — name the YAML file in it"),
        ("big.yml", "big.yml: 10.0 MB is too big for a task file (at most 1 MB) — "),
        ("latin.yml", "latin.yml:2:5: byte 9 (0xe9) is not UTF-8 — save the file as UTF-8"),
        ("wide.yml", "wide.yml:1:1: byte 0 (0xff) is not UTF-8 — save the file as UTF-8"),
        ("a\0b.yml", "a\0b.yml: "),
    ],
)
def test_unreadable_files_are_refused_by_name(tmp_path: Path, name: str, message: str) -> None:
    """Missing, folder, too big and wrongly encoded: each says what to do."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "lora.yml").write_text(BASE)
    (tmp_path / "latin.yml").write_bytes(b"a: 1\nb: c\xe9\n")
    (tmp_path / "wide.yml").write_bytes("a: 1\n".encode("utf-16"))
    with (tmp_path / "big.yml").open("wb") as big:
        big.truncate(10_000_000)
    with pytest.raises(ConfigError) as caught:
        read_task_file(Path(name), root=tmp_path)
    assert str(caught.value).startswith(message)


_WORDS = 'runner:\nrunpod:\na:\n-\n#\n{\n}\n[\n]\n,\n"\n|\n&x\n*x\n<<:\n!!str\n?\n:\n1e1\n---'
_PIECES = some.sampled_from(
    [*_WORDS.splitlines(), " ", "  ", "\n", "\n  ", "\t", "\r\n", "\n  gpu: x\n", "env: {A: b}"]
)


@examples(max_examples=80, deadline=None, database=None)
@given(some.one_of(some.lists(_PIECES, max_size=15).map("".join), some.text(max_size=40)))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing but a ConfigError with the file's name comes out, whatever the text."""
    try:
        parse_task_file(text, "run.yml")
    except ConfigError as error:
        assert str(error).startswith("run.yml")  # noqa: PT017 - both ways are fine
