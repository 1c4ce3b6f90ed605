"""Command line: a file for each verb, which `verbs` lists; those that compute import torch inside."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer
from typer.exceptions import TyperException

from paragan import __version__
from paragan.cli.verbs import VERBS, add_verbs
from paragan.core.command import program_command
from paragan.core.errors import ConfigError, ParaganError, outcome
from paragan.core.printable import print_to_stderr

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. Errors that users can fix have no traceback."""
    words = [expand_home(word) for word in (sys.argv[1:] if argv is None else argv)]
    _find_local_networks()
    try:
        command = typer.main.get_command(command_line(words))
        with _warnings_as_lines(), _output_may_close(ends=words[:1] == ["watch"]):
            code = command(words, prog_name=program_command(), standalone_mode=False)
            _flush_output()
        return code if isinstance(code, int) else 0
    except typer.Abort:
        return 130
    except (Exception, KeyboardInterrupt) as error:
        code, line = outcome(_usage_error(error) if isinstance(error, TyperException) else error)
        if code == 1:
            raise
        if line:
            print_to_stderr(line)
        return code


def expand_home(word: str) -> str:
    """Expand `~` in a path argument or in `--option=PATH`, where the shell does not."""
    option, equals, value = word.rpartition("=") if word.startswith("--") else ("", "", word)
    is_home = value == "~" or value.startswith("~/")
    return option + equals + (os.path.expanduser(value) if is_home else value)


class _Output(io.FileIO):
    """Standard output that drops what is printed after its reader has exited, as in `| head`."""

    ends = False  # whether the command ends there, too, as by Ctrl-C: its one task is to print

    def write(self, data: Buffer) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if self.ends:
                raise KeyboardInterrupt from None
            return super().write(data)


@contextmanager
def _output_may_close(ends: bool) -> Iterator[None]:
    """Let a command outlive the reader of its standard output, or end with it."""
    before = sys.stdout
    if not isinstance(before, io.TextIOWrapper) or before is not sys.__stdout__:  # of a program
        yield
        return
    raw = _Output(before.fileno(), "w", closefd=False)
    raw.ends = ends
    buffer = io.BufferedWriter(raw)
    # a name that the terminal's encoding lacks is printed as an escape, not an error after hours of work
    errors = "backslashreplace" if before.errors == "strict" else before.errors
    sys.stdout = io.TextIOWrapper(buffer, before.encoding, errors, line_buffering=before.line_buffering)
    try:
        yield
    finally:
        sys.stdout = before


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Print a warning of this package as the line `warning: TEXT`, without the file and line that raised it."""
    before = warnings.showwarning
    package = str(Path(__file__).parents[1])

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category is UserWarning and filename.startswith(package):
            print_to_stderr(f"warning: {message}")
        else:
            before(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = before


def _flush_output() -> None:
    """Write what is printed, so that a full disk is an error with a message."""
    try:
        sys.stdout.flush()
    except OSError:
        # at its end the interpreter flushes again, and would end with 120
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def _find_local_networks() -> None:
    """Let imports find the working directory, last: its files cannot replace libraries."""
    if not {"", str(Path.cwd())} & set(sys.path):
        sys.path.append(str(Path.cwd()))


def _usage_error(error: TyperException) -> ParaganError:
    """Return a usage error in one line, or the whole help for a command without arguments."""
    if error.format_message().startswith("Usage:"):
        return ParaganError(error.format_message())
    context = getattr(error, "ctx", None)
    command = program_command() if context is None else context.command_path
    text = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
    return ConfigError(f"{command}: {text}; see `{command} --help`")


def _print_version(requested: bool) -> None:
    if requested:
        print(f"paragan {__version__}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


def _paragan(version: Version = False) -> None:
    """Train generative adversarial networks, from one CPU core to a cluster, from one config."""


def command_line(words: Sequence[str] | None = None) -> typer.Typer:
    """Return the command line with the verbs that these words need.

    A verb first: it alone. Nothing, or only -h, --help or --version: all, but of each only the text that the help
    prints. Other words, such as a misspelled verb, or None: all.
    """
    app = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        callback=_paragan,
    )
    help_only = words is not None and list(words) in ([], ["-h"], ["--help"], ["--version"])
    add_verbs(app, words[:1] if words and words[0] in VERBS else VERBS, help_only)
    return app
