"""runner.callbacks, as far as it can be known without importing the user's code.

The pod imports them at the root of the repository (pod/user_callbacks.py). Here their modules are
looked for and their source is read: a class that is not there stops the run before anything is
rented. A module that the repository does not have may be installed in the image, so that is a
warning.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

from runner.finding import Finding, stop, warn
from runner.taskfile import TaskFile

# A file's content by its path from the repository's root, None where there is none.
Read = Callable[[str], bytes | None]

# On a pod these packages are ours: a folder of the user's with such a name is not seen there.
OURS = frozenset(
    {"benchmarks", "blocks", "deployments", "flows", "pod", "runner", "tasks", "tests"}
)


def callback_findings(task: TaskFile, read: Read) -> list[Finding]:
    """Findings for the callbacks of a task file in the repository that `read` reads."""
    return [
        finding for name in task.settings.callbacks for finding in _of_callback(task, name, read)
    ]


def reading(root: Path) -> Read:
    """Read files below this folder."""

    def read(path: str) -> bytes | None:
        try:
            return (root / path).read_bytes()
        except OSError:
            return None

    return read


def repository_root(file: Path) -> Path:
    """The root of the repository that a file lies in, its folder where it lies in none."""
    folder = file.absolute().parent
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)


def _of_callback(task: TaskFile, name: str, read: Read) -> Iterator[Finding]:
    at = task.setting_place("callbacks")
    module, _, class_name = name.rpartition(".")
    package = module.partition(".")[0]
    path, content = _source(module, read)
    has_package = _source(package, read)[1] is not None
    theirs = content is not None or has_package
    if package in OURS and theirs and read("pod/plugin.py") is None:
        yield stop(
            "callback-name",
            f"callbacks: {name}: {package} is a package of axolotl-runner itself, which comes "
            "first on the pod",
            "give the folder another name",
            key="callbacks",
            at=at,
        )
    elif content is None and has_package:
        yield _missing(name, f"the repository has no {path}", at)
    elif content is None:
        yield warn(
            "callback-module",
            f"callbacks: {name}: the repository has no {path}",
            "commit it, unless it is installed in the image",
            key="callbacks",
            at=at,
        )
    else:
        yield from _in_source(name, class_name, path, content, at)


def _in_source(
    name: str, class_name: str, path: str, content: bytes, at: tuple[int, int]
) -> Iterator[Finding]:
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError) as error:  # ValueError: a NUL byte
        line = getattr(error, "lineno", None)
        where = f"{path}:{line}" if line else path
        yield _missing(name, f"{where} is no Python: {getattr(error, 'msg', error)}", at)
        return
    defined = _defined(tree)
    if class_name not in defined and not {"*", "__getattr__"} & defined:
        yield _missing(name, f"{path} has no {class_name}", at)


def _missing(name: str, why: str, at: tuple[int, int]) -> Finding:
    hint = "write it as module.Class, counted from the root of the repository"
    return stop("callback", f"callbacks: {name}: {why}", hint, key="callbacks", at=at)


def _source(module: str, read: Read) -> tuple[str, bytes | None]:
    """The file of a module and its content; without one the name that it should have."""
    path = module.replace(".", "/")
    for file in (f"{path}/__init__.py", f"{path}.py"):  # in Python's own order
        content = read(file)
        if content is not None:
            return file, content
    return f"{path}.py", None


def _defined(tree: ast.Module) -> set[str]:
    """The names that a module may have; `*` when it takes over all of another's."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.Import(names=imported) | ast.ImportFrom(names=imported):
                names.update((each.asname or each.name).partition(".")[0] for each in imported)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names
