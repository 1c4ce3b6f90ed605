"""docs/cli.md: the output of `--help` for every verb."""

from __future__ import annotations

import typer

from paragan.cli.main import app

_WIDTH = 100
_HEAD = """# Command line

Use `./run VERB …` in a checkout, `paragan VERB …` if the library is installed. Exit codes: 0 done, 2 you must change
something (one line says what), 75 try again, 85 stopped and saved; the same command resumes."""


def page() -> str:
    command = typer.main.get_command(app)
    context = _context(command, "paragan", None)
    blocks = [_HEAD, f"```text\n{_help(command, context)}\n```"]
    for name in command.list_commands(context):
        verb = command.get_command(context, name)
        blocks += [f"## {name}", f"```text\n{_help(verb, _context(verb, name, context))}\n```"]
    return "\n\n".join(blocks) + "\n"


def _context(command, name, parent):
    return typer.Context(command, info_name=name, parent=parent, terminal_width=_WIDTH, max_content_width=_WIDTH)


def _help(command, context) -> str:
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())
