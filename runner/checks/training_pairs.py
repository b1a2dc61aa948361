"""Pairs about data, batches, saving, evaluating and learning rates."""

from __future__ import annotations

from runner.checks.rule import Rule, Values, both, items, number_of, removed


def _given(values: Values, key: str) -> bool:
    return bool(values.get(key))


def _strategy(values: Values) -> object:
    return values.get("eval_strategy") or values.get("evaluation_strategy")


def _evaluates_nothing(values: Values) -> bool:
    size = values.get("val_set_size")
    asked = _given(values, "eval_steps") or bool(_strategy(values))
    none = size == 0 and size is not None and not _given(values, "test_datasets")
    return none and asked and _strategy(values) != "no"


def _stops_early_unevenly(values: Values) -> bool:
    if not _given(values, "early_stopping_patience"):
        return False
    saves, evals = number_of(values, "save_steps"), number_of(values, "eval_steps")
    return not saves or not evals or saves % evals != 0


def _streams(values: Values) -> bool:
    return _given(values, "streaming") or _given(values, "pretraining_dataset")


TRAINING_PAIRS = (
    Rule(
        ("datasets",),
        lambda v: v.get("datasets") is None and v.get("pretraining_dataset") is None,
        "neither datasets nor pretraining_dataset is set",
        "name the data to train on",
    ),
    Rule(
        ("datasets",),
        lambda v: any(
            str(each.get("type")).startswith("sharegpt") for each in items(v, "datasets")
        ),
        "the data set type sharegpt is no longer supported",
        "use type: chat_template",
    ),
    both(
        "val_set_size",
        "test_datasets",
        "val_set_size and test_datasets can't be used together",
        "keep one of the two",
    ),
    Rule(
        ("eval_steps", "eval_strategy", "evaluation_strategy"),
        _evaluates_nothing,
        "eval_steps and eval_strategy are not supported with val_set_size: 0",
        "set val_set_size or test_datasets, or remove the evaluation",
    ),
    both(
        "evals_per_epoch",
        "eval_steps",
        "eval_steps and evals_per_epoch can't be used together",
        "keep one of the two",
    ),
    Rule(
        ("eval_strategy", "eval_steps"),
        lambda v: _given(v, "eval_steps") and bool(_strategy(v)) and _strategy(v) != "steps",
        "eval_steps needs eval_strategy: steps",
        "set it to steps, or remove one of the two",
    ),
    Rule(
        ("eval_strategy", "evals_per_epoch"),
        lambda v: _given(v, "evals_per_epoch") and bool(_strategy(v)) and _strategy(v) != "steps",
        "evals_per_epoch needs eval_strategy: steps, or none",
        "remove one of the two",
    ),
    Rule(
        ("do_bench_eval",),
        lambda v: (
            _given(v, "do_bench_eval")
            and not (_given(v, "evals_per_epoch") or _given(v, "eval_steps"))
        ),
        "do_bench_eval needs evals_per_epoch or eval_steps",
        "set one of them",
    ),
    Rule(
        ("eval_table_size", "sample_packing"),
        lambda v: (
            _given(v, "sample_packing")
            and _given(v, "eval_table_size")
            and v.get("eval_sample_packing") is not False
        ),
        "eval_table_size can't be used with packed evaluation",
        "set eval_sample_packing: false",
    ),
    Rule(
        ("save_strategy", "save_steps"),
        lambda v: (
            _given(v, "save_strategy")
            and _given(v, "save_steps")
            and v.get("save_strategy") != "steps"
        ),
        "save_steps needs save_strategy: steps",
        "set it to steps, or remove one of the two",
    ),
    both(
        "saves_per_epoch",
        "save_steps",
        "save_steps and saves_per_epoch can't be used together",
        "keep one of the two",
    ),
    Rule(
        ("save_strategy",),
        lambda v: v.get("save_strategy") == "best" and not _given(v, "metric_for_best_model"),
        "save_strategy: best needs metric_for_best_model",
        "set it, for example to eval_loss",
    ),
    Rule(
        ("early_stopping_patience", "save_steps"),
        _stops_early_unevenly,
        "early_stopping_patience needs save_steps and eval_steps, the first a multiple of the "
        "second",
        "set both",
    ),
    both(
        "batch_size",
        "gradient_accumulation_steps",
        "batch_size and gradient_accumulation_steps can't be used together",
        "remove batch_size",
    ),
    Rule(
        ("batch_size",),
        lambda v: (
            _given(v, "batch_size")
            and not (_given(v, "micro_batch_size") or _given(v, "gradient_accumulation_steps"))
        ),
        "batch_size alone does not say how much fits at once",
        "set micro_batch_size and gradient_accumulation_steps instead",
    ),
    both(
        "warmup_steps",
        "warmup_ratio",
        "warmup_steps and warmup_ratio can't be used together",
        "keep one of the two",
    ),
    both(
        "lr_groups",
        "loraplus_lr_ratio",
        "lr_groups and loraplus_lr_ratio can't be used together",
        "keep one of the two",
    ),
    Rule(
        ("neftune_noise_alpha",),
        lambda v: (
            v.get("neftune_noise_alpha") is not None and number_of(v, "neftune_noise_alpha", 1) <= 0
        ),
        "neftune_noise_alpha must be above 0",
        "raise it, or remove the key",
    ),
    both(
        "noisy_embedding_alpha",
        "neftune_noise_alpha",
        "noisy_embedding_alpha is the old name of neftune_noise_alpha, and both are set",
        "remove noisy_embedding_alpha",
    ),
    Rule(
        ("pretraining_dataset", "streaming"),
        lambda v: _streams(v) and not _given(v, "max_steps"),
        "streamed data have no known length, so max_steps must say when to stop",
        "set max_steps",
    ),
    Rule(
        ("val_set_size",),
        lambda v: _streams(v) and _given(v, "val_set_size"),
        "val_set_size is not supported with streamed data",
        "name test_datasets instead",
    ),
    both(
        "include_tokens_per_second",
        "pretraining_dataset",
        "include_tokens_per_second can't be used with pretraining_dataset",
        "remove it",
    ),
    Rule(
        ("dataset_exact_deduplication",),
        lambda v: (
            _given(v, "dataset_exact_deduplication")
            and (_streams(v) or _given(v, "skip_prepare_dataset"))
        ),
        "dataset_exact_deduplication needs data that are prepared, not streamed",
        "remove it",
    ),
    Rule(
        ("chat_template",),
        lambda v: v.get("chat_template") == "jinja" and not _given(v, "chat_template_jinja"),
        "chat_template: jinja needs chat_template_jinja",
        "add the template or the path of its file",
    ),
    Rule(
        ("datasets",),
        lambda v: any(
            each.get("chat_template") == "jinja" and not each.get("chat_template_jinja")
            for each in items(v, "datasets")
        ),
        "chat_template: jinja of a data set needs chat_template_jinja beside it",
        "add the template or the path of its file",
    ),
    removed("max_packed_sequence_len", "use sample_packing with sequence_len"),
    removed("rope_scaling", "put it below model_config"),
)
