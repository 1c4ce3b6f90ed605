"""Table of verbs: the function of each, and the extension that provides what it does.

A command imports its own verb alone; the help imports all. A verb of an extension that was removed does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module

import typer

from paragan.cli.run_arguments import ANY_OPTION
from paragan.core.extension import has_extension


@dataclass(frozen=True)
class Verb:
    """A verb. function: `module:name` below `paragan.cli`, or `module` for one with sub-commands."""

    function: str
    extension: str | None = None
    takes_settings: bool = False


VERBS = {
    "train": Verb("train:train_command", takes_settings=True),
    "eval": Verb("evaluate:score_run"),
    "list": Verb("list:list_all"),
    "config": Verb("config:config", takes_settings=True),
    "plan": Verb("plan:plan_command", "planning", takes_settings=True),
    "sample": Verb("sample:sample_command"),
    "serve": Verb("serve:serve_command", "serving"),
    "project": Verb("project:project_command", "serving"),
    "export": Verb("export:export"),
    "report": Verb("report:report"),
    "compare": Verb("compare:compare_runs"),
    "watch": Verb("watch:watch"),
    "replay": Verb("replay:replay", "replay"),
    "launch": Verb("launch:launch_command", "clusters", takes_settings=True),
    "tune": Verb("tune:tune_command", "tuning", takes_settings=True),
    "worker": Verb("worker:worker_command", "grid"),
    "new": Verb("new:new"),
    "verify": Verb("verify:verify", "verify"),
    "doctor": Verb("doctor:doctor"),
    "data": Verb("data"),
    "metrics": Verb("metrics"),
}


def add_verbs(app: typer.Typer, chosen: Iterable[str] = VERBS) -> None:
    """Add the chosen verbs to the command line."""
    for name in chosen:
        verb = VERBS[name]
        if verb.extension is not None and not has_extension(verb.extension):
            continue
        module, _, function = verb.function.partition(":")
        imported = import_module(f"paragan.cli.{module}")
        if function:
            app.command(name, context_settings=ANY_OPTION if verb.takes_settings else None)(getattr(imported, function))
        else:
            app.add_typer(imported.app, name=name)
