"""What can't be fetched from the hub or over the network."""

from __future__ import annotations

from runner.causes.cause import Cause

HUB: tuple[Cause, ...] = (
    Cause(
        "gated model",
        "Accept the licence at https://huggingface.co/{repo} with the account that HF_TOKEN "
        "belongs to, and see that the control side has HF_TOKEN.",
        (
            r"trying to access a gated repo",
            r"GatedRepoError",
            r"is a gated (repository|dataset)",
            r"not in the authorized list",
            r"Cannot access gated repo",
        ),
        final=True,
        words={
            "repo": (r"huggingface\.co/((?:datasets/)?[\w.-]+/[\w.-]+)", "…"),
        },
    ),
    Cause(
        "hub rate limit",
        "Wait some minutes and `axolotl-runner resume`; with HF_TOKEN set the limit is higher.",
        (
            r"429 Too Many Requests",
            r"429 Client Error",
            r"rate limit(ed)? (you|exceeded)",
        ),
    ),
    Cause(
        "hub token refused",
        "Make a new token at https://huggingface.co/settings/tokens and set HF_TOKEN on the "
        "control side to it.",
        (
            r"Invalid user token",
            r"Invalid (username or password|credentials)",
            r"User Access Token .* is expired",
            r"token is (invalid|not valid)",
            r"specific connection error when trying to load(.|\n)*401 Unauthorized",
        ),
        final=True,
    ),
    Cause(
        "hub permission",
        "Give HF_TOKEN access to the repository above, write access where something is uploaded"
        " (`hub_model_id`), or name another one.",
        (
            r"403 Forbidden: (?!None)",
            r"don't have the rights to create",
            r"required permissions? to (perform|write)",
            r"huggingface(.|\n)*403 Forbidden",
        ),
        final=True,
    ),
    Cause(
        "hub down",
        "Nothing to change: try `axolotl-runner resume` when https://status.huggingface.co is "
        "green.",
        (
            r"'50[0234] (Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)'",
            r"50[0234] Server Error",
            r"HTTP Error 50[0234] thrown while requesting",
        ),
    ),
    Cause(
        "network or DNS",
        "Nothing in the task file: the machine can't reach the address above; try "
        "`axolotl-runner resume`, which takes another machine.",
        (
            r"Name or service not known",
            r"Temporary failure in name resolution",
            r"NameResolutionError",
            r"(?<!gloo )Connection refused",
            r"Network is unreachable",
            r"No route to host",
            r"CERTIFICATE_VERIFY_FAILED",
            r"Max retries exceeded with url",
            r"(Connect|Read)Timeout(Error)?\b",
            r"RemoteProtocolError|IncompleteRead|ConnectionResetError",
        ),
    ),
    Cause(
        "offline",
        "Take HF_HUB_OFFLINE out of `runner.env`, or bring model and data set onto the pod in "
        "`entry`.",
        (
            r"OfflineModeIsEnabled",
            r"offline mode is enabled",
            r"HF_HUB_OFFLINE is set",
        ),
        final=True,
    ),
    Cause(
        "hub away",
        "See the log for what the machine was answered; try `axolotl-runner resume`.",
        (
            r"the client has been closed",
            r"LocalEntryNotFoundError",
            r"We couldn't connect to 'http",
            r"specific connection error when trying to load",
        ),
        second_hand=True,
    ),
    Cause(
        "data set missing",
        "Correct `datasets: path` ({what}): the name on the hub, or a path in the repository; a"
        " private one needs HF_TOKEN.",
        (
            r"DatasetNotFoundError",
            r"doesn't exist on the Hub",
            r"Couldn't find any data file at",
            r"Unable to find '[^']+\.(jsonl?|csv|parquet|arrow|txt)",
            r"The dataset could not be loaded\. This could be due to",
            r"Unhandled dataset load",
            r"Cloud path .* is neither a directory nor a file",
        ),
        final=True,
        outcome="config_error",
        words={
            "what": (
                r"(?:Unable to find|Dataset|any data file at|Couldn't find|dataset path) "
                r"['(]?([\w.-]*/[\w./-]+)",
                "above",
            ),
        },
    ),
    Cause(
        "model not found",
        "Correct `base_model` or its revision: it must be a name on the hub or a folder on the "
        "pod; a private one needs HF_TOKEN.",
        (
            r"is not a valid model identifier",
            r"RepositoryNotFoundError",
            r"RevisionNotFoundError",
            r"is not a valid git identifier",
            r"Repo id must be in the form",
            r"does not appear to have (a file|files) named",
            r"no file named .*(safetensors|pytorch_model)",
            r"Can't load the (configuration|config|tokenizer|model|feature extractor)",
            r"Unrecognized model in",
            r"does not recognize this architecture",
        ),
        final=True,
        outcome="config_error",
    ),
    Cause(
        "model file broken",
        "A download was cut off: `axolotl-runner resume` fetches the file again on another pod.",
        (
            r"SafetensorError",
            r"Error while deserializing header",
            r"Consistency check failed",
            r"MetadataIncompleteBuffer",
        ),
    ),
)
