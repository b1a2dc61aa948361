"""What the task file asks for and can't be: keys, data, packages, trackers."""

from __future__ import annotations

from runner.causes.cause import Cause

TASK_FILE: tuple[Cause, ...] = (
    Cause(
        "eval split too small",
        "Set `eval_sample_packing: false`, or a larger `val_set_size`.",
        (r"eval dataset split is too small for sample_packing",),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "config refused by axolotl",
        "Change the key that the lines above name: axolotl does not take the task file as it is.",
        (
            r"validation errors? for (Axolotl|\w*Config|\w*Dataset|\w+Args)",
            r"pydantic_core\._pydantic_core\.ValidationError",
            r"yaml\.(scanner|parser|constructor)\.\w+Error",
            r"Failed to load custom trainer class",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "chat template missing",
        "Set `chat_template:`, or `tokenizer_config:` to a tokenizer that brings a template.",
        (
            r"tokenizer\.chat_template is not set",
            r"does not have a chat template",
            r"chat_template choice is .* but tokenizer's chat_template is null",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "code of the model not trusted",
        "Set `trust_remote_code: true` if you trust the code in the model's repository.",
        (
            r"trust_remote_code=True` to",
            r"contains custom code which must be executed",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "user's callback",
        "Correct the callback that the lines above name and push again, or take it out of "
        "`runner.callbacks`.",
        (r"runner\.callbacks",),
        frames=(r'File "(?!.*(site-packages|/pod/|lib/python)).*", line \d+, in on_\w+$',),
    ),
    Cause(
        "plugin not loaded",
        "See that `plugins:` names a module that can be imported from the repository's root.",
        (
            r"Failed to load plugin",
            r"^plugin not loaded",
        ),
        final=True,
    ),
)

PACKAGES: tuple[Cause, ...] = (
    Cause(
        "compiler (torch.compile, triton)",
        "Set `torch_compile: false`, leave out what needs a compiler (liger and "
        "cut_cross_entropy plugins), or take a `runner.image` with gcc.",
        (
            r"torch\._(dynamo|inductor)\.exc",
            r"(Inductor|BackendCompiler)(Failed|Error)",
            r"InvalidCxxCompiler|No working C\+\+ compiler|Failed to find C compiler",
            r"triton\.(compiler|runtime)",
            r"PassManager::run failed",
        ),
        final=True,
    ),
    Cause(
        "dependency",
        "Install {module} in `entry:` (`pip install …`), or take a `runner.image` that has it "
        "in the right version.",
        (
            r"ModuleNotFoundError",
            r"ImportError",
            r"cannot import name",
            r"PackageNotFoundError",
            r"doesn't seem to be installed",
            r"No matching distribution found",
            r"ResolutionImpossible|No solution found when resolving",
            r"Could not find a version that satisfies",
            r"subprocess-exited-with-error|Failed to build installable wheels",
        ),
        final=True,
        words={
            "module": (
                r"(?:No module named|package for|requirement|distribution found for) '?([\w.-]+)",
                "the package",
            ),
        },
    ),
    Cause(
        "wandb id refused",
        "Take `wandb_run_id` out of the task file: W&B never takes the id of a deleted run again.",
        (r"was previously created and deleted",),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "wandb key",
        "Set WANDB_API_KEY on the control side (https://wandb.ai/authorize), or `wandb_mode: "
        "offline`, or take `wandb_project` out.",
        (
            r"No API key configured",
            r"api_key not configured",
            r"API key must (have|be) \d+",
            r"wandb\S*\.(AuthenticationError|UsageError)",
            r"user is not logged in",
            r"wandb(.|\n)*(permission denied|401 Unauthorized|403 Forbidden)",
        ),
        final=True,
    ),
    Cause(
        "wandb away",
        "Nothing to change, or `wandb_mode: offline`: W&B does not answer.",
        (
            r"Run initialization has timed out",
            r"wandb\S*\.CommError",
        ),
    ),
)

DATA: tuple[Cause, ...] = (
    Cause(
        "data set format",
        "Make the rows fit `datasets: type` (its keys are in axolotl's documentation), or name "
        "another type; `axolotl preprocess` on your own machine shows the same.",
        (
            r"DatasetGeneration(Cast)?Error",
            r"ArrowInvalid|JSON parse error",
            r"No ':' found when decoding",
            r"unhandled prompt tokenization strategy",
            r"InvalidDataException",
            r"Unknown messages format",
            r"(Messages is null|is null)\. Please check `field",
            r"Prompt(, chosen and rejected| and completion) keys are required",
            r"Column .* not in the dataset",
        ),
        frames=(r"axolotl/(prompt_strategies|prompt_tokenizers|prompters)",),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "data set empty",
        "See that rows are left: none is, after those that are empty or longer than "
        "`sequence_len` were dropped; `axolotl preprocess` on your own machine shows the same.",
        (
            r"num_samples=0",
            r"dataset is empty|no samples left|Dataset has zero rows",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "checkpoint of another model",
        "Begin a new run: the checkpoint was made with another model, adapter or number of tokens.",
        (
            r"size mismatch for",
            r"Error\(s\) in loading state_dict for",
        ),
        final=True,
    ),
)
