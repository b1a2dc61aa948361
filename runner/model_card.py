"""The model card of a published model: facts in, the text of README.md out.

Names and figures of others (revisions, reasons, the task file) stand in tables and code blocks that
they can't leave. Secrets are taken out of the whole text at its end.

Not covered: what the model is for, and where it fails. Nobody but its author can say that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runner.card_markdown import code, facts_table, fenced, plain_facts_table, safe, table
from runner.card_metadata import is_hub_id, with_metadata
from runner.card_settings import TEXT
from runner.notice import dollars
from runner.provenance import PastAttempt, Provenance
from runner.rungs import words
from runner.secrets import scrub

Kind = Literal["adapter", "merged", "full"]
PICTURE = "training_loss.png"
ADAPTER_FOLDER = "adapter"
UNKNOWN = "not known"


@dataclass(frozen=True)
class Source:
    """A model or data set that went in, named as in the task file. `local`: it was a file on the
    machine, whatever its name looks like.
    """

    name: str
    kind: Literal["model", "dataset"] = "model"
    revision: str | None = None
    form: str = ""
    local: bool = False

    @property
    def hub_id(self) -> str | None:
        return self.name if is_hub_id(self.name) and not self.local else None


@dataclass(frozen=True)
class CardFacts:
    """All that a card says. `merge_failed` is why an adapter is published although a merged model
    was wanted; `picture` says whether the curve lies beside the card.
    """

    repository: str
    kind: Kind
    method: str
    base: Source
    pipeline: str = TEXT
    datasets: Sequence[Source] = ()
    license: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)
    hardware: str = ""
    picture: bool = False
    merge_failed: str = ""
    task_text: str = ""
    told: Provenance = field(default_factory=Provenance)


def model_card(facts: CardFacts) -> str:
    """The card, with its metadata at the top."""
    told = facts.told
    parts = [
        f"# {safe(facts.repository.rpartition('/')[2])}",
        _what(facts),
        f"![Training loss by step]({PICTURE})" if facts.picture else "",
        f"## Use\n\n{fenced(_usage(facts), 'python')}" if facts.pipeline == TEXT else "",
        f"## Results\n\n{plain_facts_table(facts.results)}" if facts.results else "",
        f"## Data\n\n{_data(facts.datasets)}",
        f"## Settings\n\n{plain_facts_table(facts.settings)}",
        _attempts(told.attempts),
        f"## Where it comes from\n\n{facts_table(_origin(facts))}",
        _task_file(facts),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return scrub(with_metadata(metadata(facts), text))


def metadata(facts: CardFacts) -> dict[str, object]:
    """What the hub shows and searches for; only values that it accepts."""
    datasets = list(dict.fromkeys(each.hub_id for each in facts.datasets if each.hub_id))
    adapter = facts.kind == "adapter"
    method = re.split(r"[^a-z]+", facts.method.lower())
    known = [word for word in ("lora", "qlora", "dpo", "kto", "orpo", "grpo") if word in method]
    return {
        **({"base_model": facts.base.hub_id} if facts.base.hub_id else {}),
        **({"base_model_relation": _relation(adapter)} if facts.base.hub_id else {}),
        **({"datasets": datasets} if datasets else {}),
        **({"license": facts.license} if facts.license else {}),
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": facts.pipeline,
        "tags": ["axolotl", "axolotl-runner", *known],
    }


def _relation(adapter: bool) -> str:
    return "adapter" if adapter else "finetune"


def _what(facts: CardFacts) -> str:
    kinds: dict[Kind, str] = {
        "adapter": f"An adapter ({facts.method}) for {_linked(facts.base)}",
        "merged": f"{_linked(facts.base)} with a trained adapter ({facts.method}) merged into it",
        "full": f"{_linked(facts.base)} after {facts.method}",
    }
    said = (
        f"{kinds[facts.kind]}, trained with "
        "[axolotl](https://github.com/axolotl-ai-cloud/axolotl) by axolotl-runner."
    )
    if facts.kind == "merged":
        said += f" The adapter alone is in `{ADAPTER_FOLDER}/`."
    if facts.merge_failed:
        said += f" It was to be merged into its base, which failed: {safe(facts.merge_failed)}"
    return said


def _usage(facts: CardFacts) -> str:
    library = "peft" if facts.kind == "adapter" else "transformers"
    model = "AutoPeftModelForCausalLM" if facts.kind == "adapter" else "AutoModelForCausalLM"
    imports = (
        [f"from {library} import {model}", "from transformers import AutoTokenizer"]
        if library == "peft"
        else [f"from transformers import {model}, AutoTokenizer"]
    )
    return "\n".join(
        [
            *imports,
            "",
            f"model = {model}.from_pretrained({facts.repository!r})",
            f"tokenizer = AutoTokenizer.from_pretrained({facts.repository!r})",
        ]
    )


def _data(datasets: Sequence[Source]) -> str:
    if not datasets:
        return "The task file names none."
    rows = [(_linked(each), _revision(each), safe(each.form)) for each in datasets]
    return table(("data set", "version", "format"), rows)


def _revision(source: Source) -> str:
    if source.revision:
        return f"revision {code(source.revision)}"
    return f"revision {UNKNOWN}" if source.hub_id else "from a disk"


def _attempts(attempts: Sequence[PastAttempt]) -> str:
    if not attempts:
        return ""
    rows = [
        (
            str(each.n),
            "the start" if not each.from_checkpoint else f"checkpoint {each.from_checkpoint}",
            "nothing" if each.rung is None else safe(words(each.rung)),
            f"{_number(each.first_step)}–{_number(each.last_step)}",
            _ended(each),
        )
        for each in attempts
    ]
    columns = ("attempt", "began at", "what was changed", "steps", "how it ended")
    return f"## Attempts\n\n{table(columns, rows)}"


def _ended(attempt: PastAttempt) -> str:
    said = attempt.outcome.replace("_", " ")
    if attempt.alarm_step is not None:
        said += f" at step {attempt.alarm_step}"
        if attempt.onset_step not in (None, attempt.alarm_step):
            said += f", since step {attempt.onset_step}"
    return safe(f"{said}: {attempt.reason}" if attempt.reason else said)


def _origin(facts: CardFacts) -> dict[str, str]:
    told = facts.told
    where = code(told.repository) if told.repository else ""
    return {
        "Base model": f"{_linked(facts.base)}, {_revision(facts.base)}",
        "Task file": code(told.task_file) if told.task_file else "",
        "Repository": where,
        "Commit": code(told.commit) if told.commit else "",
        "Run": code(told.run) if told.run else "",
        "Software": ", ".join(f"{safe(name)} {safe(v)}" for name, v in facts.versions.items()),
        "Hardware": safe(facts.hardware),
        "Pods": "; ".join(
            f"{safe(pod.cloud)}{f' ({safe(pod.place)})' if pod.place else ''}, "
            f"{pod.hours:.2f} h, {dollars(pod.cost_usd)}"
            for pod in told.pods
        ),
        "Cost": "" if told.cost_usd is None else f"{dollars(told.cost_usd)} up to the upload",
        **{safe(name): f"<{url}>" for name, url in (told.links or {}).items() if _is_link(url)},
    }


def _task_file(facts: CardFacts) -> str:
    if not facts.task_text.strip():
        return ""
    block = fenced(facts.task_text.strip("\n"), "yaml")
    summary = "<summary>what axolotl was given, as it was written</summary>"
    return f"## Task file\n\n<details>\n{summary}\n\n{block}\n\n</details>"


def _linked(source: Source) -> str:
    if source.hub_id is None:
        return code(source.name)
    place = "datasets/" if source.kind == "dataset" else ""
    return f"[{source.name}](https://huggingface.co/{place}{source.name})"


def _number(step: int | None) -> str:
    return "" if step is None else str(step)


def _is_link(url: str) -> bool:
    return re.fullmatch(r"https?://[^\s<>]+", url) is not None
