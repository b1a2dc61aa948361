"""The trainer's file: what changes, and that nothing else does."""

from pathlib import Path
from typing import cast

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as some

from runner.adapt import PLUGIN, Adaptation, adapt, cadence_warnings, without_block
from runner.taskfile import parse_task_file

FIXED = "plugins: [pod.plugin.RunnerPlugin]\noutput_dir: /run/out\ndataset_prepared_path: /p\n"


def adapted(
    text: str, *, source_dir: str = "/none", root: str = "/none", **overrides: object
) -> Adaptation:
    """The adaptation of this text for a run in /run."""
    task = parse_task_file(text, "run.yml")
    return adapt(task, run_dir="/run", source_dir=source_dir, root=root, overrides=overrides)


def values(text: str) -> dict[str, object]:
    """What axolotl will read."""
    return cast(dict[str, object], yaml.safe_load(text))


def test_a_whole_file_changes_only_where_it_must() -> None:
    """Order, comments, spacing and spelling of all else stay (H01, H27, H36, H40, H46)."""
    before = """# My run

# where and how much
runner:
  gpu: NVIDIA RTX A6000   # a comment inside
  env:
    TOKEN: hf_secret
# budget: 3
# the model
base_model:   me/model  # spaces stay
learning_rate: 2e-5
datasets:
  - path: me/data   # hub
    type: alpaca

plugins:
  - axolotl.integrations.liger.LigerPlugin   # first
hub_model_id: me/toy
loss_watchdog_threshold: 5e0
output_dir: ./out  # replaced
save_total_limit: 2
'quoted': "é \\u00e9"
"""
    after = """# My run

# set by axolotl-runner
dataset_prepared_path: /run/prepared
# the model
base_model:   me/model  # spaces stay
learning_rate: 2e-5
datasets:
  - path: me/data   # hub
    type: alpaca

plugins:
  - axolotl.integrations.liger.LigerPlugin   # first
  - pod.plugin.RunnerPlugin
output_dir: /run/out  # replaced
save_total_limit: 4
'quoted': "é \\u00e9"
"""
    assert adapted(before).text == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("plugins:\n  - a.B\n", "plugins:\n  - a.B\n  - pod.plugin.RunnerPlugin\n"),
        ("plugins:\n- a.B # c\n", "plugins:\n- a.B # c\n- pod.plugin.RunnerPlugin\n"),
        ("plugins: [a.B, c.D]\n", "plugins: [a.B, c.D, pod.plugin.RunnerPlugin]\n"),
        ("plugins: [a.B,\n  c.D, ]\n", "plugins: [a.B,\n  c.D, pod.plugin.RunnerPlugin, ]\n"),
        ("plugins: [ ]\n", "plugins: [pod.plugin.RunnerPlugin ]\n"),
        ("plugins:\n", "plugins: [pod.plugin.RunnerPlugin]\n"),
        ("plugins: # none\n", "plugins: [pod.plugin.RunnerPlugin] # none\n"),
        ("plugins: ~\n", "plugins: [pod.plugin.RunnerPlugin]\n"),
        ("plugins: a.B\n", "plugins: [a.B, pod.plugin.RunnerPlugin]\n"),
        ("plugins:\n  - pod.plugin.RunnerPlugin\n", "plugins:\n  - pod.plugin.RunnerPlugin\n"),
    ],
)
def test_plugin_joins_the_list_in_its_own_style(before: str, after: str) -> None:
    """Block, flow, empty, null and a single name; never twice."""
    rest = "output_dir: /run/out\ndataset_prepared_path: /p\nsave_total_limit: 4\n"
    assert adapted(before + rest).text == after + rest
    assert adapted(rest + before).text == rest + after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("output_dir: ./a # c\n", "output_dir: /run/out # c\n"),
        ("output_dir: './a'\n", "output_dir: /run/out\n"),
        ("output_dir:\n", "output_dir: /run/out\n"),
        ("output_dir:\n  ./a\n", "output_dir:\n  /run/out\n"),
        ("output_dir: >\n  ./a\n\n", "output_dir: /run/out\n"),
        (
            "output_dir: a\nx: 1\noutput_dir: b\n",
            "output_dir: /run/out\nx: 1\noutput_dir: /run/out\n",
        ),
        ("? output_dir\n: a\n", "? output_dir\n: /run/out\n"),
        ("x: 1\n", "# set by axolotl-runner\noutput_dir: /run/out\nx: 1\n"),
        ("# h\n\n# c\nx: 1", "# h\n\n# set by axolotl-runner\noutput_dir: /run/out\n# c\nx: 1"),
        (
            "--- # c\n  x: 1\n",
            "--- # c\n  # set by axolotl-runner\n  output_dir: /run/out\n  x: 1\n",
        ),
    ],
)
def test_values_are_set_where_they_stand(before: str, after: str) -> None:
    """A set key changes in its place; a missing one is added above the first, at its indent."""
    indent = "  " if before.startswith("---") else ""
    rest = "".join(
        f"\n{indent}{line}" for line in [f"plugins: [{PLUGIN}]", "dataset_prepared_path: /p"]
    )
    rest = (rest + f"\n{indent}save_total_limit: 4\n").removeprefix("\n" * before.endswith("\n"))
    assert adapted(before + rest).text == after + rest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("runner: {gpu: A}\nx: 1\n", "x: 1\n"),
        ("x: 1\nrunner:\n  gpu: A\n", "x: 1\n"),
        ("x: 1\nrunner:\n  gpu: A", "x: 1\n"),
        ("# about\nrunner:\n  gpu: A # c\nx: 1\n", "x: 1\n"),
        ("# head\n\n# about\nrunner:\n  gpu: A\n\n# x\nx: 1\n", "# head\n\n\n# x\nx: 1\n"),
        ("runner:\n  gpu: A\n  # TOKEN: s\n\n  # s\n# x\nx: 1\n", "# x\nx: 1\n"),
        ("runner:\n  gpu: A\n# env: s\n# - s\n# x\nx: 1\n", "# x\nx: 1\n"),
        ("runner:\n  gpu: A\n# end\n\nx: 1\n", "\nx: 1\n"),
        ("x: 1\nrunner:\n  gpu: A\n# end\n", "x: 1\n"),
        ("runner:\n  entry: |\n    a\n    # b\n\nx: 1\n", "x: 1\n"),
        ("x:\n  - 1\n  # of x\n# s\nrunner:\n  gpu: A\n", "x:\n  - 1\n  # of x\n"),
        ('x: "a\n# no comment\n"\nrunner: {}\n', 'x: "a\n# no comment\n"\n'),
        ("x: |\n  a\nrunner: {}\ny: 2\n", "x: |\n  a\ny: 2\n"),
        ("runner:\n# env: s\n  gpu: A\nx: 1\n", "x: 1\n"),
        ("runner:\n\n# note\nx: 1\n", "\n# note\nx: 1\n"),
        ("# s\r\nrunner:\r\n  gpu: A\r\n  # s\r\nx: 1\r\n", "x: 1\r\n"),
        ("runpod:\n  gpu: A\nx: 1\n", "x: 1\n"),
    ],
)
def test_runner_block_vanishes_with_its_comments(before: str, after: str) -> None:
    """Nothing of the block is left for a model card to publish; other comments stay (H46)."""
    fixed = FIXED + "save_total_limit: 4\n"
    assert adapted(fixed + before).text == fixed + after


def test_the_task_file_without_our_block_is_as_its_author_wrote_it() -> None:
    """H46: for the model card: own paths, keys that we take from axolotl, and comments."""
    text = "# mine\ndatasets:\n  - path: data/x.jsonl # here\nhub_model_id: me/x\n"
    ours = "runner: # ours\n  env: {A: secret}\n  # also ours\n"
    assert without_block(parse_task_file(text + ours, "x.yml")) == text
    assert without_block(parse_task_file(text, "x.yml")) == text


@pytest.mark.parametrize(
    "line",
    [
        "hub_model_id: me/x",
        "hub_strategy: every_save",
        "push_dataset_to_hub: me/d",
        "loss_watchdog_threshold: 5.0",
        "loss_watchdog_patience: 3",
        "loss_watchdog_automatic_resume: true",
        "auto_resume_from_checkpoints: true",
        "resume_from_checkpoint: ./out/checkpoint-5",
    ],
)
def test_what_axolotl_must_not_do_by_itself_is_taken_out(line: str) -> None:
    """Publishing (H27), stopping (H28) and resuming are the runner's; comments around stay."""
    fixed = FIXED + "save_total_limit: 4\n"
    assert adapted(f"{fixed}# a\n{line} # b\n# c\n").text == f"{fixed}# a\n# c\n"


@pytest.mark.parametrize(
    ("limit", "kept"),
    [("1", 4), ("3", 4), ("'2'", 4), ("0", 4), ("", 4), ("4", 4), ("10", 10), ("-1", -1)],
)
def test_enough_checkpoints_are_kept(limit: str, kept: int) -> None:
    """Rotation must leave a healthy checkpoint (H36)."""
    assert values(adapted(f"save_total_limit: {limit}\n").text)["save_total_limit"] == kept


def test_unset_save_limit_is_written_out() -> None:
    """axolotl's own default of 4 is made explicit (H36)."""
    assert values(adapted("x: 1\n").text)["save_total_limit"] == 4


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("x: 1", "/run/prepared"),
        ("dataset_prepared_path:", "/run/prepared"),
        ("dataset_prepared_path: last_run_prepared", "/run/prepared"),
        ("dataset_prepared_path: /data/prepared", "/data/prepared"),
    ],
)
def test_each_run_prepares_its_own_data(line: str, path: str) -> None:
    """A relative folder would be shared by runs; an absolute one is the user's choice (H40)."""
    assert values(adapted(line + "\n").text)["dataset_prepared_path"] == path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a task folder tasks/a, data in both, and a model in the root."""
    beside = ("tasks/a/ds.json", "tasks/a/near.jsonl", "tasks/a/chat.jinja")
    for name in (*beside, "data/far.jsonl", "model/config.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "json").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "path", "found"),
    [
        ("deepspeed: ./ds.json", ("deepspeed",), "tasks/a/ds.json"),
        ("base_model: model", ("base_model",), "model"),
        ("base_model: ../../model", ("base_model",), "model"),
        ("lora_model_dir: ./model", ("lora_model_dir",), "model"),
        ("datasets: [{path: near.jsonl}]", ("datasets", 0, "path"), "tasks/a/near.jsonl"),
        ("datasets: [{path: data/far.jsonl}]", ("datasets", 0, "path"), "data/far.jsonl"),
        ("datasets: [{path: data/*.jsonl}]", ("datasets", 0, "path"), "data/*.jsonl"),
        (
            "datasets:\n  - path: json\n    data_files: near.jsonl # c",
            ("datasets", 0, "data_files"),
            "tasks/a/near.jsonl",
        ),
        (
            "test_datasets:\n- path: json\n  data_files:\n    - data/far.jsonl",
            ("test_datasets", 0, "data_files", 0),
            "data/far.jsonl",
        ),
        ("chat_template_jinja: chat.jinja", ("chat_template_jinja",), "tasks/a/chat.jinja"),
        (
            "datasets: [{path: me/d, chat_template_jinja: chat.jinja}]",
            ("datasets", 0, "chat_template_jinja"),
            "tasks/a/chat.jinja",
        ),
        ("pretraining_dataset: data/far.jsonl", ("pretraining_dataset",), "data/far.jsonl"),
    ],
)
def test_local_paths_are_found_from_the_file_then_the_root(
    checkout: Path, line: str, path: tuple[str | int, ...], found: str
) -> None:
    """A sibling of the task file is found whatever the trainer's folder (H06)."""
    folder = str(checkout / "tasks" / "a")
    value: object = values(adapted(line + "\n", source_dir=folder, root=str(checkout)).text)
    for step in path:
        value = value[step]  # type: ignore[index]
    assert value == str(checkout / found)


@pytest.mark.parametrize(
    "line",
    [
        "deepspeed: deepspeed_configs/zero2.json",
        "deepspeed: {zero_optimization: {stage: 2}}",
        "base_model: HuggingFaceTB/SmolLM2-135M",
        "base_model: /abs/model",
        "datasets: [{path: tatsu-lab/alpaca, type: alpaca}]",
        "datasets: [{path: json, data_files: 'https://host/x.jsonl'}]",
        "datasets: [{path: s3://bucket/x.jsonl}]",
        "datasets:",
        "datasets: me/data",
        "chat_template_jinja: '{{ messages }}'",
    ],
)
def test_what_is_not_local_is_left_alone(checkout: Path, line: str) -> None:
    """Hub names, shipped configurations, addresses and loader names pass as they are (H06)."""
    text = FIXED + f"save_total_limit: 4\n{line}\n"
    assert adapted(text, source_dir=str(checkout / "tasks/a"), root=str(checkout)).text == text


@pytest.mark.parametrize(
    "text",
    [
        '{"base_model": "x", "runner": {"env": {"T": "secret"}}, "output_dir": "./out"}\n',
        "a: &p [a.B]\nplugins: *p\noutput_dir: x\n",
        "plugins: &p [a.B]\nother: *p\n",
        "defaults: &d {output_dir: x, hub_model_id: me/x}\n<<: *d\n",
        "runner:\n  env: &e {T: v}\nx: *e\n",
        "output_dir: &o ./out\nother: *o\n",
        "x: .nan\ny: 2024-01-02\nz: !!binary aGk=\nrunner: {}\n",
        "runner: {gpu: A}\n",
        "runner: {gpu: A}",
        "%YAML 1.1\n---\nx: 1\n...\n",
        'datasets:\n  - &d {path: json}\n  - <<: *d\n    path: "text"\n',
    ],
)
def test_odd_files_keep_their_meaning(text: str) -> None:
    """Flow roots, anchors and merges: the values are right, the block is gone."""
    before, after = values(text), values(adapted(text).text)
    changed = {"plugins", "output_dir", "dataset_prepared_path", "save_total_limit"}
    gone = {"runner", "hub_model_id"}
    assert after["output_dir"] == "/run/out"
    assert PLUGIN in cast(list[str], after["plugins"])
    assert set(after) == (set(before) - gone) | changed
    for key in set(before) - gone - changed:
        assert repr(after[key]) == repr(before[key])


@pytest.mark.parametrize(
    ("text", "planned", "codes"),
    [
        ("save_steps: 10\n", None, []),
        ("saves_per_epoch: 2\n", None, []),
        ("save_strategy: epoch\n", None, []),
        ("x: 1\n", None, ["rare-saves"]),
        ("save_steps: 500\n", 100, ["rare-saves"]),
        ("save_steps: 0.1\n", 100, []),
        ('save_strategy: "no"\n', None, ["no-saves"]),
        ("save_strategy: no\n", None, ["no-saves"]),
        ("save_steps: 5\nsave_only_model: true\n", None, ["save-only-model"]),
    ],
)
def test_saves_that_leave_nothing_to_go_back_to_are_a_warning(
    text: str, planned: int | None, codes: list[str]
) -> None:
    """The cadence stays as it is, and the user is told (H36)."""
    found = cadence_warnings(parse_task_file(text, "run.yml"), planned=planned)
    assert [warning.code for warning in found] == codes
    assert {warning.level for warning in found} <= {"warn"}


_VALUES = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(-99, 99)
    | some.floats()
    | some.text(max_size=8)
    | some.sampled_from(["2e-5", "a\n# b\n", "x: y", "- z", "a\n\n"]),
    lambda inner: (
        some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = some.sampled_from(["a", "b", "output_dir", "plugins", "hub_model_id", "save_steps", "z"])
_MAPPINGS = some.dictionaries(_KEYS, _VALUES, max_size=5)


@examples(max_examples=20, deadline=None, database=None)
@given(_MAPPINGS, _MAPPINGS, some.sampled_from([None, False, True]), some.sampled_from("|>'\"x"))
def test_any_file_keeps_its_meaning(
    above: dict[str, object], below: dict[str, object], flow: bool | None, style: str
) -> None:
    """Whatever stands around the block, in whatever style, reads back unchanged."""
    parts = [
        _dump(above, flow, style),
        "# s\nrunner:\n  gpu: A\n  # s\n",
        _dump(below, flow, style),
    ]
    text = "".join(part for part in parts if part)
    before = values(text)
    output = before.get("output_dir")
    if isinstance(output, str) and (output[:1] == "~" or "$" in output or "{{" in output):
        return
    after = values(adapted(text).text)
    for key in set(before) - {"runner", "hub_model_id", "plugins", "output_dir"}:
        assert repr(after[key]) == repr(before[key])
    assert "runner" not in after
    assert cast(list[object], after["plugins"])[-1] == PLUGIN


def _dump(mapping: dict[str, object], flow: bool | None, style: str) -> str:
    """Block style at the top, `flow` below it, texts in the given style."""
    return "".join(
        yaml.safe_dump(
            {key: value},
            default_flow_style=flow
            if isinstance(value, list | dict) and flow is not True
            else False,
            default_style=style if style != "x" and isinstance(value, str) else None,
        ).removesuffix("...\n")
        for key, value in mapping.items()
    )


SMALLER = {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 40}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "micro_batch_size: 8   # rows\ngradient_accumulation_steps: 1\nmax_steps: 40\n",
            "micro_batch_size: 4   # rows\ngradient_accumulation_steps: 2\nmax_steps: 40\n",
        ),
        (
            "num_epochs: 1\nmicro_batch_size: 8\n",
            "# set by axolotl-runner\ngradient_accumulation_steps: 2\nmax_steps: 40\n"
            "num_epochs: 1\nmicro_batch_size: 4\n",
        ),
    ],
)
def test_an_attempt_overrides_values_where_they_stand(before: str, after: str) -> None:
    """Comments and order stay; what was not written is added on top."""
    rest = FIXED + "save_total_limit: 4\n"
    assert adapted(before + rest, **SMALLER).text == after + rest


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("batch_size: 8\n", {"gradient_accumulation_steps": 2}),
        ("eval_batch_size: 8\n", {"eval_batch_size": 4, "gradient_accumulation_steps": 2}),
        ("eval_batch_size: 2\n", {"eval_batch_size": 2, "gradient_accumulation_steps": 2}),
    ],
)
def test_a_smaller_batch_reaches_the_keys_that_go_with_it(
    more: str, wanted: dict[str, object]
) -> None:
    """axolotl refuses batch_size beside the accumulation, and an evaluation may be what did not
    fit.
    """
    read = values(adapted("micro_batch_size: 8\n" + more, **SMALLER).text)
    names = ("batch_size", "eval_batch_size", "gradient_accumulation_steps")
    assert {name: read[name] for name in names if name in read} == wanted


def test_without_overrides_the_batch_is_left_alone() -> None:
    """The keys are axolotl's."""
    text = "micro_batch_size: 8\nbatch_size: 16\neval_batch_size: 8\n"
    assert values(adapted(text).text).items() >= values(text).items()
