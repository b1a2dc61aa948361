"""What happens between processes; most of it follows from what happened to one of them."""

from __future__ import annotations

from runner.causes.cause import Cause

PROCESSES: tuple[Cause, ...] = (
    Cause(
        "port in use",
        "Nothing to change: try `axolotl-runner resume`; something else has the port.",
        (r"EADDRINUSE|[Aa]ddress already in use",),
    ),
    Cause(
        "permission",
        "Write below the run's own folders: leave out `output_dir` and `dataset_prepared_path`,"
        " or name a path that the pod's user may write.",
        (
            r"PermissionError|Permission denied",
            r"Read-only file system",
            r"Operation not permitted",
        ),
        final=True,
    ),
    Cause(
        "NCCL",
        'Set `NCCL_DEBUG: INFO` in `runner.env` to see more, `NCCL_P2P_DISABLE: "1"` for '
        "machines whose GPUs can't reach each other, or `gpu_count: 1`.",
        (
            r"DistBackendError|Dist(Network|Store)Error",
            r"nccl\w*Error|NCCL (error|operations|communicator)",
            r"Watchdog caught collective operation timeout",
            r"Connection closed by peer|Broken pipe|BrokenPipeError",
            r"Socket Timeout|client socket has timed out",
        ),
        second_hand=True,
    ),
    Cause(
        "another process ended it",
        "See the full log (`axolotl-runner logs`): the first error is further up.",
        (
            r"ChildFailedError",
            r"CalledProcessError",
            r"SignalException|got signal: 15",
            r"DataLoader worker .* (exited unexpectedly|is killed)",
        ),
        second_hand=True,
    ),
)
