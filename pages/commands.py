"""docs/reference/cli.md: the output of `--help` for every verb; and the verbs in the usage text of `run`."""

from __future__ import annotations

import textwrap
from pathlib import Path

import typer

from paragan.cli.main import command_line
from paragan.cli.verbs import VERBS

NUM_COMMON = 8  # verbs that the usage text of `run` describes; the others it names
_WIDTH = 100
_HEAD = """# Command line

Use `./run VERB …` in a checkout, `paragan VERB …` if the library is installed. Exit codes: 0 done, 2 you must change
something (one line says what), 75 try again, 85 stopped and saved; the same command resumes."""


def page() -> str:
    command = typer.main.get_command(command_line())
    context = _context(command, "paragan", None)
    blocks = [_HEAD, f"```text\n{_help(command, context)}\n```"]
    for name in command.list_commands(context):
        blocks += _sections(command.get_command(context, name), name, context, "##")
    return "\n\n".join(blocks) + "\n"


def script(path: Path) -> str:
    """The script `run`, whose usage text describes the common verbs and names the others, above its own."""
    command = typer.main.get_command(command_line())
    _, _, listed = _help(command, _context(command, "paragan", None)).partition("Commands:\n")
    described = {line.split()[0]: line for line in listed.splitlines()}
    head, start, rest = path.read_text(encoding="utf-8").partition("explains one.\n\n")
    _, end, tail = rest.partition("\n  Checkout: ")
    lines = [*(described[name] for name in [*VERBS][:NUM_COMMON]), "", *_other_verbs()]
    return head + start + "\n".join(lines) + end + tail


def _other_verbs() -> list[str]:
    """Return the names of the verbs that are not common: of the core, then of each extension."""
    by_extension: dict[str | None, list[str]] = {None: []}
    for name, verb in list(VERBS.items())[NUM_COMMON:]:
        by_extension.setdefault(verb.extension, []).append(name)
    core = by_extension.pop(None)
    groups = [
        ", ".join(names) if names == [name] else f"{name}: {', '.join(names)}" for name, names in by_extension.items()
    ]
    extensions = textwrap.fill("; ".join(groups), width=80, initial_indent="  Extensions: ", subsequent_indent=" " * 14)
    return [f"  More:       {', '.join(core)}", extensions]


def _sections(verb, name, parent, level) -> list[str]:
    """A heading and the help of a verb, and of the verbs below it."""
    context = _context(verb, name, parent)
    blocks = [f"{level} {context.command_path.partition(' ')[2]}", f"```text\n{_help(verb, context)}\n```"]
    for inner in getattr(verb, "commands", {}):
        blocks += _sections(verb.get_command(context, inner), inner, context, f"{level}#")
    return blocks


def _context(command, name, parent):
    return typer.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH)


def _help(command, context) -> str:
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
