"""The command line: thin over Prefect's API, which has all of this too.

Exit codes: 0 completed or ok, 1 the run ended otherwise, 2 bad input, 130 interrupted. Prefect is
imported after the control side's address is known, since it reads its settings at import.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from deployments import control
from runner.errors import ConfigError, RunnerError
from runner.home import home
from runner.values import plain_number

OK, ENDED_OTHERWISE, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# What each secret is for, and what happens without it.
SECRETS = {
    "HF_TOKEN": "upload to the Hugging Face hub and gated models; without it only public ones",
    "WANDB_API_KEY": "W&B tracking; without it runs are not tracked there",
    "AXR_GITHUB_TOKEN": "private repositories and commit statuses; without it only public ones",
    "RUNPOD_API_KEY": "renting pods on RunPod; without it only `cloud: local`",
    "VAST_API_KEY": "renting machines on Vast.ai",
    "AXR_NOTIFY_URLS": "Apprise URLs for notices, such as discord://…; without it nobody is told",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `axolotl-runner`."""
    parsed = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = parsed.command
    try:
        code = command(parsed)
    except ConfigError as error:
        print(error, file=sys.stderr)
        code = BAD_INPUT
    except RunnerError as error:
        print(f"axolotl-runner: {error}", file=sys.stderr)
        code = ENDED_OTHERWISE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def up(arguments: argparse.Namespace) -> int:
    """Start the Prefect server (unless PREFECT_API_URL names one) and the control workers."""
    side = control.up(home())
    print(f"Prefect UI: {side.ui}")
    for name, purpose in SECRETS.items():
        if not os.environ.get(name):
            print(f"not set: {name} ({purpose})")
    return OK


def down(arguments: argparse.Namespace) -> int:
    """Stop the control side; pods go on training and are found again by the next `up`."""
    print("stopped" if control.down(home()) else "nothing was running")
    return OK


def serve(arguments: argparse.Namespace) -> int:
    """Be the control side in the foreground, for systemd and containers; SIGTERM ends it."""
    os.environ.update(control.environment(home()))
    from deployments.keeper import keep

    home().logs.mkdir(parents=True, exist_ok=True)
    keep(home())
    return OK


def check(arguments: argparse.Namespace) -> int:
    """Say what is wrong with task files before anything is rented."""
    from deployments.checking import check_files

    files = [Path(name) for name in arguments.files]
    return check_files(files, as_json=arguments.json, offline=arguments.offline)


def run(arguments: argparse.Namespace) -> int:
    """Train a task file."""
    from deployments.submit import run_file

    return run_file(
        Path(arguments.file),
        cloud=arguments.cloud,
        watch=arguments.watch,
        cancel_on_interrupt=arguments.cancel_on_interrupt,
    )


def pods(arguments: argparse.Namespace) -> int:
    """List all pods of ours on all clouds."""
    side = control.running(home())
    if side:  # it knows what the pods do; it isn't started for this
        os.environ.update(control.environment(home()), PREFECT_API_URL=side.api)
    from deployments.listing import print_pods

    return print_pods(as_json=arguments.json)


def logs(arguments: argparse.Namespace) -> int:
    """Print the logs of a run: its flows, then its trainer."""
    _connect()
    from deployments.listing import print_logs

    return print_logs(arguments.run)


def cancel(arguments: argparse.Namespace) -> int:
    """Cancel a run: its trainer saves a checkpoint, its pod is given back."""
    _connect()
    from deployments.steering import cancel_run

    return cancel_run(arguments.run)


def resume(arguments: argparse.Namespace) -> int:
    """Resume a run that has ended from its last healthy checkpoint."""
    _connect()
    from deployments.steering import resume_run

    return resume_run(arguments.run, watch=arguments.watch, budget=arguments.budget)


def connect(arguments: argparse.Namespace) -> int:
    """Let pushes to a repository start runs."""
    _connect()
    from deployments.connecting import connect_repository

    return connect_repository(
        arguments.repository, url=arguments.url, hook=arguments.hook, days=arguments.days
    )


def notify(arguments: argparse.Namespace) -> int:
    """Send a test notice to AXR_NOTIFY_URLS, or to a notifier block, and say who took it."""
    if arguments.block:
        _connect()
    from deployments.telling import send_test

    return send_test(arguments.block)


def _connect() -> control.Control:
    """Bring the control side up if need be and point this process's Prefect at it."""
    side = control.up(home())
    os.environ.update(control.environment(home()), PREFECT_API_URL=side.api)
    return side


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="axolotl-runner",
        description="Commit an axolotl YAML; get back a trained model, a report and a bill.",
        epilog="Exit codes: 0 completed or ok, 1 ended otherwise, 2 bad input, 130 interrupted.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(command: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        text = (command.__doc__ or "").strip()
        sub = commands.add_parser(command.__name__, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    add(up)
    add(down)
    add(serve)
    checking = add(check)
    checking.add_argument("files", nargs="+", metavar="FILE")
    checking.add_argument("--json", action="store_true", help="print one JSON list")
    checking.add_argument("--offline", action="store_true", help="ask no hub and no cloud")
    running = add(run)
    running.add_argument("file", metavar="FILE")
    running.add_argument("--cloud", help="overrides `runner.cloud` of the task file")
    running.add_argument("--watch", action="store_true", help="show progress until the run ends")
    running.add_argument(
        "--cancel-on-interrupt",
        action="store_true",
        help="Ctrl-C cancels the run instead of leaving it",
    )
    connecting = add(connect)
    connecting.add_argument("repository", metavar="OWNER/REPO")
    connecting.add_argument("--url", help="where git finds it; default GitHub")
    connecting.add_argument(
        "--hook",
        action="store_true",
        help="install the post-receive hook: --url is a bare repository",
    )
    connecting.add_argument(
        "--days", type=int, default=365, help="how long the token for GitHub holds"
    )
    telling = add(notify)
    telling.add_argument("--block", metavar="NAME", help="a block of type Axolotl Notifier")
    listing = add(pods)
    listing.add_argument("--json", action="store_true", help="print one JSON list")
    for command in (logs, cancel, resume):
        sub = add(command)
        sub.add_argument("run", metavar="RUN", help="the run's id or the first characters of it")
        if command is resume:
            sub.add_argument(
                "--watch", action="store_true", help="show progress until the run ends"
            )
            sub.add_argument(
                "--budget",
                type=_dollars,
                metavar="USD",
                help="what the whole run may cost, replacing `runner.budget` of the task file",
            )
    return parser


def _dollars(text: str) -> float:
    amount = plain_number(text)
    if amount is None or amount <= 0:
        raise argparse.ArgumentTypeError(f"expected USD above 0, found {text}")
    return amount


if __name__ == "__main__":
    main()
