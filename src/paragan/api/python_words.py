"""Settings, errors and warnings as a Python program writes and reads them; a command has them as words and lines."""

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paragan.core.errors import CheckpointError, ConfigError
from paragan.core.option_types import not_finite_item
from paragan.core.printable import to_printable

_ARGUMENTS = {
    "command line: ": "",
    "Trainer:1: ": "",
    "--out DIR": "out=DIR",
    "--fresh": "fresh=True",
    "--change": "train.change_rates=True",
}
_OF_TRAINER = {  # sections whose objects are arguments of `Trainer`
    "loss": "; an object is passed to paragan.Trainer(loss=…), a file of yours is loss=FILE.py",
    "penalties": "; objects are passed to paragan.Trainer(terms=[…])",
    "model": "; networks are passed to paragan.Trainer(generator, discriminator, …)",
    "data": "; data in memory is passed to paragan.Trainer(…, data)",
}


def setting_word(key: str, value: Any) -> str:
    """Return a setting as the command line takes it; JSON is a part of its YAML. Raises `ConfigError` for objects."""
    if key == "preset":  # a bare word on the command line, where the values of other keys are YAML
        return f"{key}={value}"
    if (item := not_finite_item(value, key)) is not None:
        raise ConfigError(f"settings: {item[0]} is {item[1]}; pass a finite number")
    try:
        return f"{key}={json.dumps(value, allow_nan=False, ensure_ascii=False, default=os.fspath)}"
    except (TypeError, ValueError):
        raise ConfigError(
            f"settings: {key} is a {type(value).__name__}; pass a number, text, True, False, None, a list or a dict"
            f"{_OF_TRAINER.get(key.partition('.')[0], '')}"
        ) from None


@contextmanager
def in_python_words() -> Iterator[None]:
    """Raise errors inside with the options of the command line as arguments of Python."""
    try:
        yield
    except (CheckpointError, ConfigError) as error:
        message = str(error)
        for option, argument in _ARGUMENTS.items():
            message = message.replace(option, argument)
        kind = CheckpointError if isinstance(error, CheckpointError) else ConfigError
        raise kind(message) from error.__cause__


def warn(line: str) -> None:
    """Report a line as a Python warning."""
    # the place is this line: the caller's would be one of paragan, too, as it gets this function as its log
    warnings.warn(to_printable(line.removeprefix("warning: ")), stacklevel=1)


@contextmanager
def warnings_as_lines(is_main: bool = True) -> Iterator[None]:
    """Show warnings of this package as the line `warning: TEXT`, without the code that raised them.

    is_main: whether this rank prints them. It formats them and leaves `showwarning` alone, so that the filters and
    recorders of a program work as without it; a command has none, and prints its warnings to its own stream.
    """
    before = warnings.formatwarning
    package = str(Path(__file__).parents[1])

    def as_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        if category is UserWarning and filename.startswith(package):
            return f"warning: {to_printable(message)}\n" if is_main else ""
        return before(message, category, filename, lineno, line)

    warnings.formatwarning = as_line
    try:
        yield
    finally:
        warnings.formatwarning = before
