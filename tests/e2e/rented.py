"""A control side whose rented cloud is an emulator, for whole runs with real axolotl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from runner.home import REPOSITORY, axolotl_environment
from tests.e2e.conftest import Side, make_side, needs_axolotl

KEY = "e2e_account_key"
SECRETS = {
    "HF_TOKEN": "hf_e2e_token_of_the_run",
    "WANDB_API_KEY": "wandb_e2e_key_of_the_run",
    "AXR_SECRET_GREETING": "open-sesame-of-the-run",
}


@dataclass(frozen=True)
class Rented:
    """The control side, and the emulator's address."""

    side: Side
    url: str

    @property
    def state(self) -> dict[str, Any]:
        """What the emulator knows."""
        return dict(self._control("GET", "_state"))

    def set(self, **switches: Any) -> None:
        """Switch faults."""
        self._control("POST", "_faults", switches)

    def pods_of(self, run: str) -> list[dict[str, Any]]:
        """Every pod that this run ever had, the living first."""
        state = self.state
        named = (f"axr-{run}",)
        both = state["pods"] + state["ended"]
        return [pod for pod in both if pod.get("name", pod.get("label")) in named]

    def training(self, run: str, step: int = 12) -> tuple[dict[str, Any], Path]:
        """The run's pod and its folder there, once this step was trained."""
        self.side.wait("the pod", lambda: self.pods_of(run))
        (pod,) = self.pods_of(run)
        folder = volume_of(pod) / "axr" / run
        self.side.wait(f"step {step}", lambda: any(e["step"] == step for e in steps(folder)))
        return pod, folder

    def _control(self, method: str, path: str, body: Any = None) -> Any:
        origin = self.url.removesuffix("/v2")
        answer = httpx.request(method, f"{origin}/{path}", json=body, timeout=30)
        return answer.raise_for_status().json()


@contextmanager
def emulated(name: str, *options: str) -> Iterator[str]:
    """The address of an emulator in a process of its own; its pods find axolotl and our Python."""
    image = {"AXR_PYTHON": sys.executable, "AXR_AXOLOTL_ENV": str(axolotl_environment())}
    process = subprocess.Popen(
        [sys.executable, "-m", f"tests.emulators.{name}", "--port", "0", *options],
        cwd=REPOSITORY,
        env={**os.environ, "AXR_EMULATED_IMAGE_ENV": json.dumps(image)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def renting(cloud: str, **environment: str) -> Iterator[Rented]:
    """An emulated cloud and a control side that has an account there."""
    needs_axolotl()
    with tempfile.TemporaryDirectory(prefix="axr-") as folder, emulated(cloud, "--key", KEY) as url:
        made = make_side(Path(folder) / "home")
        word = cloud.upper()
        account = {f"AXR_{word}_URL": url, f"{word}_API_KEY": KEY}
        made.environment.update({**SECRETS, **account, **environment})
        try:
            up = made.cli("up")
            assert up.returncode == 0, up.stderr
            yield Rented(made, url)
        finally:
            made.cli("down")


def rented_task(
    folder: Path,
    example: str,
    *,
    save_steps: int = 10,
    long: bool = False,
    plugins: Sequence[str] = (),
    **runner: Any,
) -> str:
    """An example for a rented cloud; what git does not hold is named by where it lies here.

    `long`: enough steps (70 ms each) for something to happen in the middle.
    """
    keys = yaml.safe_load((REPOSITORY / example).read_text())
    if long:
        keys |= {"max_steps": 250, "save_steps": save_steps, "eval_steps": 125, "num_epochs": 20}
    if plugins:
        keys["plugins"] = list(plugins)
    tiny = REPOSITORY / "configs" / "examples" / "tiny"
    keys |= {"base_model": str(tiny / "model")}
    keys["datasets"] = [{**keys["datasets"][0], "path": str(tiny / "data.jsonl")}]
    del keys["dataset_prepared_path"]
    keys["runner"] = {"env": {"HF_HUB_OFFLINE": "1"}, **runner}
    file = folder / "rented.yml"
    file.write_text(yaml.safe_dump(keys, sort_keys=False))
    return str(file)


def volume_of(pod: dict[str, Any]) -> Path:
    """Where the pod's volume lies on this machine."""
    return Path(pod["volume"]) if "volume" in pod else Path(pod["root"]) / "workspace" / "data"


def steps(folder: Path, attempt: int = 1) -> list[dict[str, Any]]:
    """The steps of an attempt, as far as they are written."""
    path = folder / "events.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [each for each in found if (each["kind"], each["attempt"]) == ("step", attempt)]
