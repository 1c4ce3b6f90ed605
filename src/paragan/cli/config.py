"""`paragan config`: all settings of a run."""

import dataclasses
import json
import textwrap
from typing import Annotated

import typer

from paragan.cli.arguments import AsJson, Words
from paragan.cli.run_arguments import load_config, parse_words
from paragan.config import dump, to_tree
from paragan.config.reference import Setting, of_run
from paragan.config.sections import NAMES_ONLY

_WIDTH = 96
_EXPLAIN = "Add meaning, allowed values, default and source of each setting."
Explain = Annotated[bool, typer.Option("--explain", help=_EXPLAIN)]


def config(context: typer.Context, words: Words = None, as_json: AsJson = False, explain: Explain = False) -> None:
    """Print every setting of a run, as YAML that is itself a recipe.

    Custom code is not imported: of its options only those that are set appear.
    """
    recipe, overrides, _ = parse_words(words, context)
    resolved = load_config(recipe, overrides, NAMES_ONLY)
    if not explain:
        text = json.dumps(to_tree(resolved), indent=2) if as_json else dump(resolved)
        print(text, end="\n" if as_json else "")
        return
    settings = of_run(recipe, overrides)
    if as_json:
        print(json.dumps([dataclasses.asdict(setting) for setting in settings], indent=2))
    else:
        print("\n".join(map(_explanation, settings)))


def _explanation(setting: Setting) -> str:
    default = "required" if setting.required else f"default {json.dumps(setting.default, ensure_ascii=False)}"
    source = f"; set in {setting.place}" if setting.place else ""
    text = textwrap.fill(f"{setting.meaning} ({setting.kind}; {default}{source})".lstrip(), _WIDTH)
    value = json.dumps(setting.value, ensure_ascii=False)
    return f"{setting.key} = {value}\n" + textwrap.indent(text, "    ")
