"""The `runner:` block of a task file: every key, its type and its default in one place.

Values come from YAML 1.1, where `1e1` is text and `yes` is true, or from code. So numbers may
be text, a single word may stand for a list of one, and a refusal is always a sentence that says
what was expected and what was found. The sentences carry no place: `runner.taskfile` adds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from runner.values import (
    class_path,
    factor,
    flag,
    flag_or_text,
    number,
    one_of,
    pattern,
    refuse,
    switch,
    text,
    text_list,
    variable,
    variable_name,
    whole,
)

CloudName = Literal["runpod", "vast", "local"]
CloudType = Literal["ALL", "SECURE", "COMMUNITY"]
PodType = Literal["INTERRUPTABLE", "INTERRUPTIBLE", "RESERVED", "ON_DEMAND"]
Notice = Literal["started", "spike", "resumed", "idle", "budget", "completed", "failed"]

CLOUDS: tuple[CloudName, ...] = ("runpod", "vast", "local")
NOTICES: tuple[Notice, ...] = get_args(Notice)
CLOUD_TYPES: tuple[CloudType, ...] = ("ALL", "SECURE", "COMMUNITY")
POD_TYPES: tuple[PodType, ...] = ("INTERRUPTABLE", "INTERRUPTIBLE", "RESERVED", "ON_DEMAND")
SPOT_TYPES = ("INTERRUPTABLE", "INTERRUPTIBLE")
STORE = r"volume|(hf|s3)://[\w.-]+(/[\w./=-]*)?"
STORE_WORDS = "hf://user/repository, s3://bucket/path or volume"
PORT = r"\d{1,5}/(tcp|http)"
PORT_WORDS = "a port and its kind, such as 8888/http or 22/tcp"
CUDA = r"\d{1,2}\.\d{1,2}"
CUDA_WORDS = "a version in quotes, such as '12.8'"
MOST_VARIANTS = 64  # a typing error in a matrix must not rent a hundred machines
NEVER = -1  # the proof of concept's word for "no timer" in stop_after and terminate_after
AUTO = "auto"  # runner.gpu: the cheapest GPU that the training fits on

Text = Annotated[str, BeforeValidator(text)]
Flag = Annotated[bool, BeforeValidator(flag)]
Positive = Annotated[float, BeforeValidator(number(above=0))]
Count = Annotated[int, BeforeValidator(whole(least=1))]
Amount = Annotated[int, BeforeValidator(whole(least=0))]
Minutes = Annotated[float, BeforeValidator(number(above=0, also=NEVER))]
Timer = Annotated[int, BeforeValidator(whole(least=1, also=NEVER))]
Variable = Annotated[str, BeforeValidator(variable_name)]
VariableValue = Annotated[str | None, BeforeValidator(variable)]
# The mapping: {"learning_rate": "x0.5", "weight_decay": "x2", "moments": "reset"}, or some of it.
Rung = Literal["replay", "skip"] | dict[str, str]


class Block(BaseModel):
    """What all blocks share: frozen, and no key but the ones named here."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SpikeSettings(Block):
    """When a loss curve counts as broken; a key left out keeps the detector's own default.

    `sensitivity`: more is touchier. `patience`: log entries that a jump must last.
    `warmup`: log entries at the start that raise no alarm. `strict_grad_norm`: a
    single non-finite gradient norm is an alarm too. `threshold`: a loss above it for
    `threshold_patience` log entries (not steps) is an alarm whatever the curve did before.
    """

    enabled: Flag = True
    sensitivity: Positive | None = None
    patience: Count | None = None
    warmup: Amount | None = None
    strict_grad_norm: Flag | None = None
    threshold: Annotated[float, BeforeValidator(number())] | None = None
    threshold_patience: Count | None = None

    def detector_arguments(self) -> dict[str, float | int]:
        """Keyword arguments for `pod.spikes.SpikeDetector`: only what the task file sets."""
        values: dict[str, float | int | None] = {
            "sensitivity": self.sensitivity,
            "patience": self.patience,
            "warmup": self.warmup,
            "strict_grad_norm": self.strict_grad_norm,
            "threshold": self.threshold,
            "threshold_patience": self.threshold_patience,
        }
        return {name: value for name, value in values.items() if value is not None}


def _rungs(value: object) -> object:
    return [value] if isinstance(value, str | dict) else value


def _rung(value: object) -> Rung:
    if value == "replay":
        return "replay"
    if value == "skip":
        return "skip"
    if isinstance(value, dict) and value and set(value) <= set(_CHANGES):
        return {key: _CHANGES[key](value[key]) for key in _CHANGES if key in value}
    known = "replay | skip | {learning_rate: x0.5, weight_decay: x2, moments: reset}"
    strange = [str(key) for key in value if key not in _CHANGES] if isinstance(value, dict) else []
    raise refuse(known, strange[0] if strange else value)


def _factor(value: object) -> str:
    return f"x{factor(value):g}"


# What a rung may change, in the order in which it is shown.
_CHANGES: dict[str, Callable[[object], str]] = {
    "learning_rate": _factor,
    "weight_decay": _factor,
    "moments": one_of("keep", "reset"),
}


def _default_ladder() -> list[Rung]:
    return ["replay", "skip", {"learning_rate": "x0.5"}]


def rung_factor(rung: Rung, name: str = "learning_rate") -> float:
    """What a rung multiplies the learning rate (or weight decay) by; 1.0 where it says nothing."""
    return float(rung.get(name, "x1")[1:]) if isinstance(rung, dict) else 1.0


class ResumeSettings(Block):
    """What is tried after a loss spike: each rung one attempt, at most `max_attempts` of them.

    `warm_seconds`: how long the trainer waits after an alarm to be sent back in the same process;
    0 starts a new process for every attempt. `hang_minutes`: how long a training may stand still
    before it counts as hung; left out, it is learned from the run's own pace, and is never less
    than 10 minutes; -1: it never counts as hung.
    """

    enabled: Flag = True
    max_attempts: Count = 3
    warm_seconds: Amount = 300
    hang_minutes: Minutes | None = None
    ladder: Annotated[list[Annotated[Rung, BeforeValidator(_rung)]], BeforeValidator(_rungs)] = (
        Field(default_factory=_default_ladder)
    )


def _all_notices() -> list[Notice]:
    return list(NOTICES)


class NotifySettings(Block):
    """Which events are told to whom: `block` names a Prefect notifier block."""

    on: Annotated[
        list[Annotated[Notice, BeforeValidator(one_of(*NOTICES))]], BeforeValidator(text_list)
    ] = Field(default_factory=_all_notices)
    block: Text | None = None
    quiet: Flag = False  # true: no pictures and no mentions, one line of text per event


def _counts(value: object) -> object:
    if value == []:
        raise refuse("a whole number or a list of them", value)
    return value if isinstance(value, list) else [value]


def _matrix(value: object) -> object:
    """Keys with the values that are combined; a list of one is allowed, a single value is not."""
    if not isinstance(value, dict) or not value:
        raise refuse("keys with lists of values, such as {learning_rate: [1e-4, 2e-4]}", value)
    for key, values in value.items():
        if not isinstance(values, list) or not values:
            raise refuse(f"a list of values for {key}", values)
    runs = math.prod(len(values) for values in value.values())
    if runs > MOST_VARIANTS:
        raise refuse(f"at most {MOST_VARIANTS} combinations", runs)
    return value


def _gpus(value: object) -> object:
    names = text_list(value)
    if isinstance(names, list) and any(str(name).casefold() == AUTO for name in names):
        if len(names) > 1:
            raise refuse(f"{AUTO} alone, or names of GPUs", value)
        return [AUTO]
    return names


def _local() -> list[CloudName]:
    return ["local"]


class RunnerSettings(Block):
    """Everything the `runner:` block may say, with its defaults.

    Money is in USD, `max_bid_per_gpu` and `max_price_per_hour` are per hour, the timers are in
    seconds. `gpu_count`: the batch is meant for the first of several, the others are tried in order
    where no cloud has it. `merge`: publish an adapter merged into its base. `hub_private_repo`: a
    repository that is made for the model is private. Fields below the line are the proof of
    concept's; README says what each does here.
    """

    cloud: Annotated[
        list[Annotated[CloudName, BeforeValidator(one_of(*CLOUDS))]], BeforeValidator(text_list)
    ] = Field(default_factory=_local)
    gpu: Annotated[list[Text], BeforeValidator(_gpus)] = Field(default_factory=list)
    gpu_count: Annotated[list[Count], BeforeValidator(_counts)] = Field(default_factory=lambda: [1])
    spot: Flag = False
    max_bid_per_gpu: Positive | None = None
    max_price_per_hour: Positive = 5.0
    budget: Positive | None = None
    max_hours: Positive = 24.0
    idle_minutes: Positive = 15.0
    one_shot: Flag = True
    checkpoint_store: Annotated[str, BeforeValidator(pattern(STORE, STORE_WORDS))] | None = None
    merge: Flag = False
    hub_private_repo: Flag = True
    spike: Annotated[SpikeSettings, BeforeValidator(switch)] = Field(default_factory=SpikeSettings)
    resume: Annotated[ResumeSettings, BeforeValidator(switch)] = Field(
        default_factory=ResumeSettings
    )
    notify: NotifySettings = Field(default_factory=NotifySettings)
    log_eval: Flag = True
    env: dict[Variable, VariableValue] = Field(default_factory=dict, repr=False)  # may hold secrets
    image: Text | None = None
    network_volume: Text | None = None
    data_centers: Annotated[list[Text], BeforeValidator(text_list)] = Field(default_factory=list)
    min_cuda: Annotated[str, BeforeValidator(pattern(CUDA, CUDA_WORDS))] | None = None
    registry: Text | None = None
    ports: Annotated[
        list[Annotated[str, BeforeValidator(pattern(PORT, PORT_WORDS))]], BeforeValidator(text_list)
    ] = Field(default_factory=list)
    ssh: Flag = False
    jupyter: Flag = False
    callbacks: Annotated[
        list[Annotated[str, BeforeValidator(class_path)]], BeforeValidator(text_list)
    ] = Field(default_factory=list)
    matrix: Annotated[dict[Text, list[Any]], BeforeValidator(_matrix)] = Field(default_factory=dict)
    # ---------------------------------------------------------------------------------------
    entry: Text | None = None
    template_id: Text | None = None
    pod_type: Annotated[PodType, BeforeValidator(one_of(*POD_TYPES, upper=True))] | None = None
    cloud_type: Annotated[CloudType, BeforeValidator(one_of(*CLOUD_TYPES, upper=True))] = "ALL"
    container_disk_in_gb: Count = 50
    volume_in_gb: Amount = 100
    volume_mount_path: Annotated[
        str, BeforeValidator(pattern(r"/[^\0]*", "an absolute path such as /workspace"))
    ] = "/workspace/data"
    min_vcpu_count: Count | None = None
    min_memory_in_gb: Count | None = None
    min_download: Amount | None = None
    min_upload: Amount | None = None
    stop_after: Timer | None = None
    terminate_after: Timer | None = None
    debug: Flag = False
    deepspeed: Annotated[str | bool, BeforeValidator(flag_or_text)] | None = None
    axolotl_git: Text | None = None
    axolotl_git_branch: Text | None = None
    axolotl_root: Text | None = None
    prepare_ds_only: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _pod_type_means_spot(cls, values: object) -> object:
        if not isinstance(values, dict) or not isinstance(values.get("pod_type"), str):
            return values
        spot = values["pod_type"].strip().upper() in SPOT_TYPES
        return {"spot": True, **values} if spot else values

    @model_validator(mode="after")
    def _pod_type_agrees(self) -> RunnerSettings:
        if self.pod_type in SPOT_TYPES and not self.spot:
            raise refuse(f"spot: true, as pod_type {self.pod_type} says", self.spot)
        return self
