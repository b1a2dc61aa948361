"""Real failures and what is said of them: the class, the line that tells it, what to do.

The wordings are true ones: most were provoked with the trainer's packages, those of GPUs, clouds
and registries are as public issues show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pod.logtail import LINE_LENGTH
from runner.attempts import AttemptFacts, from_message, to_message
from runner.causes import CAUSES, PODS
from runner.diagnosis import LINES, diagnose, in_few_words
from runner.errors import Outcome

SITE = "/opt/env/lib/python3.11/site-packages"
HUB_FILE = f"{SITE}/transformers/utils/hub.py"
CHAIN = "\nThe above exception was the direct cause of the following exception:\n\n"
CHILD = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nx FAILED\n"
BAR = "Loading weights:  41%|████▏     | 120/290 [00:31<00:43,  3.91it/s]\r"


def raised(message: str, *, file: str = f"{SITE}/x.py", code: str = "run()", by: str = "f") -> str:
    """A traceback as Python prints it, the innermost place last."""
    return (
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/axolotl/cli/main.py", line 129, in train\n    launch_training(cfg_file)\n'
        f'  File "{file}", line 470, in {by}\n    {code}\n    ^^^^^^^^^^^^\n{message}\n'
    )


def by_rank(rank: int, text: str) -> str:
    """The same as torchrun's workers print it."""
    return "".join(f"[rank{rank}]: {line}\n" for line in text.splitlines())


def hub_chain(status: str, last: str) -> str:
    """What transformers makes of a hub's refusal."""
    url = "http://hub/me/llm/resolve/main/config.json"
    return (
        raised(f"httpx.HTTPStatusError: {status} for url '{url}'", file=f"{SITE}/httpx/_models.py")
        + CHAIN
        + raised(last, file=HUB_FILE, code="raise OSError(", by="cached_files")
    )


@dataclass(frozen=True)
class Case:
    """A log, and the class, a word of the advice and one of the lines that must come of it."""

    kind: str
    log: str
    advice: str
    line: str
    final: bool
    outcome: Outcome = "crash"
    exit_code: int | None = 1


LOCAL_MISS = (
    "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the "
    "file on the Hub and we cannot find the requested files in the local cache."
)
NO_HUB = "OSError: We couldn't connect to 'https://huggingface.co' to load the files"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB. GPU 0 has a total "
    "capacity of 79.14 GiB of which 1.02 GiB is free."
)
NCCL = (
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process "
    "exited or there was a network error"
)
PYDANTIC = (
    "pydantic_core._pydantic_core.ValidationError: 1 validation error for "
    "AxolotlConfigWCapabilities\n  Value error, Can't load qlora in 8bit [type=value_error]"
)

CASES = [
    Case(
        "eval split too small",
        raised(
            "ValueError: eval dataset split is too small for sample_packing. You should set "
            "`eval_sample_packing: False` in your config.",
            file=f"{SITE}/axolotl/utils/data/sft.py",
        ),
        "eval_sample_packing: false", "too small for sample_packing", True, "config_error",
    ),
    Case("config refused by axolotl", raised(PYDANTIC), "key that the lines", "qlora in 8bit",
         True, "config_error"),
    Case(
        "chat template missing",
        raised("ValueError: Cannot use chat template functions because tokenizer.chat_template is "
               "not set and no template argument was passed!"),
        "chat_template", "template argument", True, "config_error",
    ),
    Case(
        "code of the model not trusted",
        raised("ValueError: The repository me/llm contains custom code which must be executed to "
               "correctly load the model."),
        "trust_remote_code: true", "custom code", True, "config_error",
    ),
    Case(
        "user's callback",
        raised("KeyError: 'eval_loss'", file="/root/axr/source/callbacks/log.py",
               code='metrics["eval_loss"]', by="on_evaluate"),
        "runner.callbacks", "callbacks/log.py", False,
    ),
    Case("plugin not loaded", "[ERROR] [axolotl.integrations] Failed to load plugin: my.Plugin\n",
         "plugins:", "my.Plugin", True),
    Case(
        "gated model",
        hub_chain(
            "Client error '403 Forbidden'",
            "OSError: You are trying to access a gated repo.\nMake sure to have access to it at "
            "https://huggingface.co/meta-llama/Llama-3.1-8B.\n403 Client Error.",
        ),
        "https://huggingface.co/meta-llama/Llama-3.1-8B with", "gated repo", True,
    ),
    Case(
        "gated model",
        raised("datasets.exceptions.DatasetNotFoundError: Dataset 'me/secret' is a gated dataset "
               "on the Hub. Visit the dataset page at https://huggingface.co/datasets/me/secret to "
               "ask for access."),
        "huggingface.co/datasets/me/secret", "gated dataset", True,
    ),
    Case(
        "model not found",
        hub_chain(
            "Client error '404 Not Found'",
            "OSError: me/no-llm is not a local folder and is not a valid model identifier listed "
            "on 'https://huggingface.co/models'",
        ),
        "base_model", "me/no-llm", True, "config_error",
    ),
    Case(
        "hub rate limit",
        hub_chain("Client error '429 Too Many Requests'", LOCAL_MISS) + CHAIN + raised(NO_HUB),
        "HF_TOKEN", "429", False,
    ),
    Case(
        "hub token refused",
        raised("huggingface_hub.errors.HfHubHTTPError: Invalid user token."),
        "settings/tokens", "Invalid user token", True,
    ),
    Case(
        "hub down",
        hub_chain("Server error '503 Service Unavailable'", LOCAL_MISS) + CHAIN + raised(NO_HUB),
        "status.huggingface.co", "503", False,
    ),
    Case(  # the last error is that of a client that gave up; the line before tells why
        "network or DNS",
        "'[Errno -2] Name or service not known' thrown while requesting HEAD "
        "https://huggingface.co/me/llm/resolve/main/config.json\nRetrying in 1s [Retry 1/5].\n"
        + raised("RuntimeError: Cannot send a request, as the client has been closed."),
        "reach", "Name or service not known", False,
    ),
    Case(
        "data set missing",
        raised("ValueError: The dataset could not be loaded. This could be due to a misconfigured "
               "dataset path (/nowhere/data.jsonl). Try double-check your path / name."),
        "datasets: path", "/nowhere/data.jsonl", True, "config_error",
    ),
    Case("data set missing", raised("FileNotFoundError: Unable to find '/data/rows.jsonl'"),
         "/data/rows.jsonl", "rows.jsonl", True, "config_error"),
    Case(
        "data set format",
        raised("KeyError: 'instruction'", file=f"{SITE}/axolotl/prompt_tokenizers.py",
               code='prompt["instruction"]', by="parse_instruction_fields"),
        "datasets: type", "KeyError: 'instruction'", True, "config_error",
    ),
    Case("data set format", raised("ValueError: No ':' found when decoding object value"),
         "datasets: type", "decoding", True, "config_error"),
    Case("data set empty",
         raised("ValueError: num_samples should be a positive integer, but got num_samples=0"),
         "sequence_len", "num_samples", True, "config_error"),
    Case("out of GPU memory", raised(OOM), "micro_batch_size", "2.25 GiB", False),
    Case(  # H33: a rank out of memory is the cause, the others' NCCL errors are not
        "out of GPU memory",
        by_rank(1, raised(OOM)) + by_rank(0, raised(NCCL)) + by_rank(2, raised(NCCL)) + CHILD,
        "micro_batch_size", "CUDA out of memory", False,
    ),
    Case("out of host memory", "", "min_memory_in_gb", "ended", False, exit_code=-9),
    Case("out of host memory", "", "min_memory_in_gb", "ended", False, exit_code=137),
    Case(
        "out of host memory",
        by_rank(0, raised(NCCL)) + "traceback : Signal 9 (SIGKILL) received by PID 4242\n" + CHILD,
        "min_memory_in_gb", "SIGKILL", False,
    ),
    Case(
        "out of host memory",
        raised("RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: "
               "can't allocate memory: you tried to allocate 4000000000 bytes."),
        "min_memory_in_gb", "DefaultCPUAllocator", False,
    ),
    Case("disk full", raised("OSError: [Errno 28] No space left on device", by="save"),
         "volume_in_gb", "No space left", True),
    Case(
        "shared memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
        "shared memory (shm).\n"
        + raised("RuntimeError: DataLoader worker (pid 71) is killed by signal: Bus error."),
        "dataloader_num_workers", "insufficient shared memory", False,
    ),
    Case(
        "driver too old",
        raised("RuntimeError: The NVIDIA driver on your system is too old (found version 12040)."),
        "min_cuda: '12.8'", "12040", False,
    ),
    Case(
        "CUDA mismatch",
        raised("torch.AcceleratorError: CUDA error: no kernel image is available for execution on "
               "the device"),
        "runner.gpu", "no kernel image", True,
    ),
    Case("no GPU on the machine", raised("RuntimeError: No CUDA GPUs are available"),
         "another one", "No CUDA GPUs", False),
    Case("GPU broken", raised("RuntimeError: CUDA error: uncorrectable ECC error encountered"),
         "elsewhere", "ECC", False),
    Case("token outside of the vocabulary", raised("IndexError: index out of range in self"),
         "special_tokens", "out of range", False),
    Case(
        "dependency",
        raised("ValueError: Kernel repository could not verify publisher trust status.")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + raised("ImportError: FlashAttention2 has been toggled on, but it cannot be used due to "
                 "the error: the package for FlashAttention2 doesn't seem to be installed."),
        "Install FlashAttention2", "FlashAttention2", True,
    ),
    Case("dependency", raised("ModuleNotFoundError: No module named 'liger_kernel.ops'"),
         "Install liger_kernel.ops", "No module named", True),
    Case(
        "compiler (torch.compile, triton)",
        raised("torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler "
               "found in torch._inductor.config.cpp.cxx: (None, 'g++')"),
        "torch_compile: false", "InvalidCxxCompiler", True,
    ),
    Case("wandb key",
         raised("wandb.errors.errors.UsageError: No API key configured. Use `wandb login`."),
         "WANDB_API_KEY", "No API key", True),
    Case(
        "wandb away",
        raised("wandb.errors.errors.CommError: Run initialization has timed out after 90.0 sec."),
        "wandb_mode: offline", "timed out", False,
    ),
    Case("NCCL", by_rank(0, raised(NCCL)) + by_rank(1, raised(NCCL)) + CHILD, "NCCL_DEBUG",
         "NCCL error", False),
    Case(
        "port in use",
        raised("torch.distributed.DistNetworkError: The server socket has failed to listen on any "
               "local network address. port: 29500, name: EADDRINUSE, message: address already in "
               "use"),
        "resume", "EADDRINUSE", False,
    ),
    Case("permission", raised("PermissionError: [Errno 13] Permission denied: '/data/out'"),
         "output_dir", "/data/out", True),
    Case("model file broken",
         raised("safetensors_rust.SafetensorError: Error while deserializing header: "
                "MetadataIncompleteBuffer"),
         "fetches the file again", "deserializing", False),
    Case(
        "checkpoint of another model",
        raised("RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:\n\tsize "
               "mismatch for lm_head.weight"),
        "new run", "state_dict", True,
    ),
    Case("unknown", raised("ZeroDivisionError: x"), "full log", "ZeroDivision", False),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kind}-{case.exit_code}")
def test_a_failure_gets_its_class_its_lines_and_its_advice(case: Case) -> None:
    """H08, H31, H33, H41, H58: also behind a wall of progress bars and before a tracker's last
    words.
    """
    log = 400 * BAR + "[INFO] loading\n" + case.log + "wandb: Synced 5 files\n"
    found = diagnose("crash", "the trainer ended before the first step", log,
                     exit_code=case.exit_code)  # fmt: skip
    assert found is not None
    assert found.kind == case.kind
    assert case.advice in found.advice
    assert case.line in "\n".join(found.lines)
    assert (found.final, found.outcome) == (case.final, case.outcome)
    assert len(found.lines) <= LINES
    assert "it/s" not in "".join(found.lines)


def test_the_lines_name_the_innermost_place() -> None:
    """Not `exit status 1`, and not the launcher's own frame."""
    found = diagnose("crash", "x", raised("KeyError: 'labels'", file="/srv/deep.py", code="row[k]"))
    assert found is not None
    assert found.lines == (
        '  File "/srv/deep.py", line 470, in f',
        "    row[k]",
        "KeyError: 'labels'",
    )


def test_a_line_of_two_megabytes_hides_nothing() -> None:
    """H58: a bar of carriage returns alone, then the traceback; long lines are cut with a mark."""
    bar = "\r".join(f"{n % 100}%|###| {n}/9999 [00:01<00:02, 9.0it/s]" for n in range(50_000))
    assert len(bar) > 1_500_000
    log = bar + "\n" + raised("ValueError: " + "x" * 5000 + "\nthe end")
    found = diagnose("crash", "x", log)
    assert found is not None
    assert found.lines[-1] == "the end"
    assert all(len(line) <= LINE_LENGTH for line in found.lines)
    assert any("(cut)" in line for line in found.lines)


def test_an_id_that_the_tracker_refuses_is_told_of_a_trainer_that_hangs() -> None:
    """H43: the old client asks again for ever and never raises."""
    line = "wandb: ERROR Error while calling W&B API: run me/toy/toy1 was previously created and "
    log = 300 * (line + "deleted; try a new run name (<Response [409]>)\n")
    found = diagnose("hang", "no step within 10 minutes", log)
    assert found is not None
    assert (found.kind, found.final) == ("wandb id refused", True)
    assert "wandb_run_id" in found.advice


def test_what_a_program_told_before_does_not_count() -> None:
    """A handled error stands in the log with its traceback, and the program went on."""
    handled = "WARNING: no telemetry\n" + raised("ConnectionRefusedError: Connection refused")
    found = diagnose("crash", "x", handled + "step 1\n" + raised("KeyError: 'labels'"))
    assert found is not None
    assert found.kind == "unknown"
    assert "KeyError: 'labels'" in found.lines


def test_what_the_trainer_told_itself_counts_where_the_log_is_silent() -> None:
    """The full disk had no room for the log either (H41)."""
    found = diagnose("crash", "x", "", error="OSError: [Errno 28] No space left on device: 'a.pt'")
    assert found is not None
    assert found.kind == "disk full"


@pytest.mark.parametrize(
    ("outcome", "reason", "kind"),
    [
        ("no_capacity", "RunPod's catalog shows no free machine for 1 RTX 4090", "no capacity"),
        ("no_capacity", "Vast refuses for want of money: lacks credit", "out of funds"),
        ("config_error", "RunPod refuses the API key (401: no); set it", "cloud key refused"),
        ("config_error", "x.yml:3:1: micro_batch_size: ImportError — change it", "config"),
        ("crash", "`entry` ended with code 2: no such file", "entry script"),
        ("hang", "no step for 30 minutes", "hang"),
        ("preempted", "the pod p is gone", "pod lost"),
        ("out_of_memory", "out of GPU memory before the first step", "out of GPU memory"),
    ],
)
def test_without_a_log_the_reason_tells_the_class(outcome: Outcome, reason: str, kind: str) -> None:
    """What the control side and the clouds say; a finding's words are about the task file."""
    found = diagnose(outcome, reason)
    assert found is not None
    assert found.kind == kind
    assert found.advice.endswith(".")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.9, please "
         "update your driver to a newer version", "driver too old"),
        ("daemon: manifest for me/image not found: manifest unknown", "image"),
        ("Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
         "image pull limit"),
        ("ERROR: No matching distribution found for prefect==3.9.1", "dependency"),
        (raised("urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>"),
         "no way to the gateway"),
        (raised("RuntimeError: Failed to reach API at https://control.example/api/"),
         "no way to the gateway"),
    ],
)  # fmt: skip
def test_a_pod_that_does_not_come_up_is_told_by_its_boot_log(log: str, kind: str) -> None:
    """H23, H56: the log comes from the cloud or the pod; a driver's advice names the version."""
    found = diagnose("no_capacity", "the pod did not start: still booting", f"boot\n{log}\n")
    assert found is not None
    assert found.kind == kind
    if kind == "driver too old":
        assert "'12.9'" in found.advice


@pytest.mark.parametrize("outcome", ["completed", "cancelled", "loss_spike", "budget", "deadline"])
def test_good_ends_and_decisions_of_ours_need_none(outcome: Outcome) -> None:
    assert diagnose(outcome, "x", raised(OOM)) is None


def test_every_class_has_a_name_of_its_own_and_advice_that_can_be_given() -> None:
    """Also where the words that the advice names are not found."""
    names = [cause.name for cause in (*CAUSES, *PODS)]
    assert len(names) == len(set(names)) >= 40
    for cause in (*CAUSES, *PODS):
        assert cause.advise("").endswith(".")


def test_the_first_300_characters_of_a_notice_tell_class_and_line() -> None:
    """The head of a notice (run, state, cost, link) takes about half of them."""
    found = diagnose("crash", "x", raised("ValueError: num_samples=0"))
    said = in_few_words("ValueError: num_samples=0 (before the first step) " + 500 * "x", found)
    assert said.startswith("data set empty: ValueError: num_samples=0")
    assert said.index("→") < 190


def test_a_diagnosis_travels_with_the_attempt() -> None:
    facts = AttemptFacts(1, "crash", "x", diagnosis=diagnose("crash", "x", raised(OOM)))
    back: Any = from_message(to_message(facts))
    assert back.diagnosis == facts.diagnosis
