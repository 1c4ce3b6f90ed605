"""Table of verbs: the function of each, and the extension that provides what it does.

A command imports its own verb alone, and the help none. A verb of an extension that was removed does not exist.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import typer

from paragan.core.registry import has_extension


@dataclass(frozen=True)
class Verb:
    """A verb. function: `module:name` below `paragan.cli`, or `module` for one with sub-commands."""

    function: str
    extension: str | None = None
    takes_settings: bool = False


VERBS = {  # the help of the script `./run` describes the first eight
    "train": Verb("train:train_command", takes_settings=True),
    "data": Verb("data"),
    "sample": Verb("sample:sample_command"),
    "report": Verb("report:report"),
    "eval": Verb("evaluate:score_run"),
    "export": Verb("export:export"),
    "list": Verb("list:list_all"),
    "doctor": Verb("doctor:doctor"),
    "config": Verb("config:config", takes_settings=True),
    "score": Verb("score:score_folders"),
    "apply": Verb("apply:apply_command"),
    "compare": Verb("compare:compare_runs"),
    "watch": Verb("watch:watch"),
    "new": Verb("new:new"),
    "metrics": Verb("metrics"),
    "plan": Verb("plan:plan_command", "planning", takes_settings=True),
    "tune": Verb("tune:tune_command", "tuning", takes_settings=True),
    "launch": Verb("launch:launch_command", "clusters", takes_settings=True),
    "verify": Verb("verify:verify", "verify"),
    "replay": Verb("replay:replay", "replay"),
    "serve": Verb("serve:serve_command", "serving"),
    "project": Verb("project:project_command", "serving"),
    "worker": Verb("worker:worker_command", "grid"),
}


def add_verbs(app: typer.Typer, chosen: Iterable[str] = VERBS, help_only: bool = False) -> None:
    """Add the chosen verbs to the command line. help_only: with nothing but the text that the help of all prints."""
    for name in chosen:
        verb = VERBS[name]
        if verb.extension is not None and not has_extension(verb.extension):
            continue
        module, _, function = verb.function.partition(":")
        if help_only:
            text = _help_text(module, function)
            if function:
                app.command(name, help=text)(lambda: None)
            else:
                app.add_typer(typer.Typer(help=text), name=name)
            continue
        imported = import_module(f"paragan.cli.{module}")
        settings = {"ignore_unknown_options": True} if verb.takes_settings else None  # `parse_words` refuses them
        if function:
            app.command(name, context_settings=settings)(getattr(imported, function))
        else:
            app.add_typer(imported.app, name=name)


def _help_text(module: str, function: str) -> str:
    """Return the help of a verb from its file: the import of all of them takes longer than the rest of the help.

    It is plain text there, no f-string.
    """
    pattern = rf'^def {function}\(.*?"""(.*?)"""' if function else r'^app = typer\.Typer\(.*?help="(.*?)"'
    text = re.search(pattern, Path(__file__).with_name(f"{module}.py").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert text is not None, module
    return text[1]
