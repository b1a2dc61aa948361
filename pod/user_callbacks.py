"""runner.callbacks: the user's own transformers callbacks, out of the repository that was pushed.

The trainer finds their modules below the repository's root, which is on its PYTHONPATH. They are
looked up before the model is loaded, made once the trainer is, and stay for the whole of the
training, rewinds in the same process included: then on_train_begin comes once more. They come after
ours, so an entry of the training log that raises an alarm does not reach them.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from transformers import Trainer, TrainerCallback

Found = dict[str, type[TrainerCallback]]


class UserCallbackError(Exception):
    """A callback of the task file can't be used; the message names it, and why."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"runner.callbacks: {name}: {why}")


@dataclass(frozen=True)
class UserCallbacks:
    """The callbacks of a trainer, by the names that the task file gives them."""

    made: dict[str, TrainerCallback]

    def hook_of(self, error: BaseException) -> str | None:
        """The callback and its method that an error came out of, None when it was none of them."""
        for frame, _ in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self")
            for name, callback in self.made.items():
                if owner is callback:
                    return f"{name}.{frame.f_code.co_name}"
        return None


def find(names: Sequence[str]) -> Found:
    """Import the classes; UserCallbackError for the first that can't be used."""
    return {name: _class(name) for name in names}


def add(found: Found, trainer: Trainer) -> UserCallbacks:
    """Make the callbacks and add them to the trainer, in their order; UserCallbackError."""
    made: dict[str, TrainerCallback] = {}
    for name, kind in found.items():
        try:
            made[name] = kind()
            trainer.add_callback(made[name])
            # The trainer has said it before, to those that it was made with.
            made[name].on_init_end(trainer.args, trainer.state, trainer.control)
        except Exception as error:
            raise UserCallbackError(name, f"it can't be made: {_said(error)}") from error
    return UserCallbacks(made)


def _class(name: str) -> type[TrainerCallback]:
    module_name, _, class_name = name.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        why = f"{module_name} can't be imported: {_said(error)}{_taken(module_name)}"
        raise UserCallbackError(name, why) from error
    kind = getattr(module, class_name, None)
    if kind is None:
        raise UserCallbackError(name, f"{_place(module) or module_name} has no {class_name}")
    if not (isinstance(kind, type) and issubclass(kind, TrainerCallback)):
        raise UserCallbackError(name, "it is no class derived from transformers.TrainerCallback")
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        why = f"it is made without arguments, but its constructor needs some: {error}"
        raise UserCallbackError(name, why) from None
    return kind


def _taken(module_name: str) -> str:
    """Where the package is that the module should be in: perhaps another of the same name."""
    package, _, inside = module_name.partition(".")
    loaded = sys.modules.get(package)
    where = _place(loaded) if inside and loaded is not None else None
    return f"; {package} is {where}" if where else ""


def _place(module: ModuleType) -> str | None:
    return module.__file__ or next(iter(getattr(module, "__path__", [])), None)


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
