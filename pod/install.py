"""Give this pod the Python that its worker and flows run with; standard library only.

`python -m pod.install` prints its path on the last line: AXR_PYTHON where the image brings one, or
a new environment beside the image's own, which has axolotl and other versions of the same packages.
uv makes it where the image has that (axolotl's does), pip elsewhere.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TRIES = 3
REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "pod" / "requirements.txt"
CONSTRAINTS = REPOSITORY / "constraints.txt"


def install(folder: Path) -> Path:
    """Make the environment in `folder`, or find it complete; its Python.

    Raises subprocess.CalledProcessError when it can't be made in TRIES tries.
    """
    python = folder / "bin" / "python"
    done = folder / ".complete"
    more = os.environ.get("AXR_PACKAGES", "")  # beyond pod/requirements.txt, with blanks between
    wanted = REQUIREMENTS.read_text() + CONSTRAINTS.read_text() + more
    if done.exists() and done.read_text() == wanted:
        return python
    for left in reversed(range(TRIES)):
        try:
            for command in _commands(folder, python, more.split()):
                subprocess.run(command, check=True, stdout=sys.stderr)
            break
        except subprocess.CalledProcessError:
            if not left:
                raise
            time.sleep(5.0)
    done.write_text(wanted)
    return python


def _commands(folder: Path, python: Path, more: list[str]) -> list[list[str]]:
    packages = [*more, "-r", str(REQUIREMENTS), "-c", str(CONSTRAINTS)]
    uv = shutil.which("uv")
    if uv:
        return [
            [uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", str(python), *packages],
        ]
    return [
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [str(python), "-m", "pip", "install", "--quiet", *packages],
    ]


def main() -> None:
    """Print the path of the Python to use."""
    given = os.environ.get("AXR_PYTHON")
    print(given or install(Path(os.environ.get("HOME", "/root")) / "axr-env"))


if __name__ == "__main__":
    main()
