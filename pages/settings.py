"""docs/reference/settings.md: every setting of every file that a config may name, with meaning, values, default."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator

from pages.cells import split
from paragan.config import RunConfig
from paragan.config.field_types import describe, fields_of
from paragan.config.reference import Setting, default_of, meanings
from paragan.core import registry
from paragan.core.option_types import TORCH_OPTIMISERS

_HEAD = """# Settings

`./run config RECIPE` prints the settings of a run; with `--explain`, also their meanings, values, defaults
and where each was set. On the command line, write a setting as `key.path=value`; in Python, as an entry of
`paragan.train("digits", {"key.path": value})`. Lengths and periods in kimg are thousands of real images.

**Changing a run.** The same command resumes a run. Lengths, periods, scores, writers and placement may then differ;
other settings are refused, with both values. `--change` (`train.change_rates`) lets a resume change learning rates,
parameter groups and schedules: the record gets an event with the step and both values, and config.yaml an
entry in `history`.

**Starting from another run.** `init=RUN` copies the weights of a run folder, of one of its checkpoints or of an
exported file into both networks and their averages, wherever name and shape match; with other classes only the
tensors per class stay at their initial values. One line reports what was copied. Optimiser state, clock and data order
start anew. The run records the path and a sha256 (`init.sha256`); a resume does not read the source again. The config
and code of the source are never read. `g.init` and `d.init` give one player the weights of safetensors files
([start from weights](../how-to/networks/weights.md#start-from-weights)).
"""
_SECTIONS = {
    "The run": "", "loading": "loading", "train": "train", "every": "every", "evaluation": "evaluation",
    "g and d": "g", "init": "init", "grid": "grid",
}  # fmt: skip
# Records, and what `replay` sets: a user writes none of them.
OF_THE_RUN = (
    *("history", "init.sha256", "g.init.sha256", "d.init.sha256"),
    "asynchronous.order",
)
_REGISTRIES = {
    "data": "datasets", "model": "models", "loss": "losses", "penalties": "penalties", "augment": "augment",
    "balancer": "balancers", "scheme": "schemes", "g.strategy, d.strategy": "parallel",
    "g.optimizer.name, d.optimizer.name": "optim", "g.adapter, d.adapter": "adapters",
    "evaluation.features": "features", "evaluation.metrics": "metrics", "writers": "writers",
}  # fmt: skip


def page() -> str:
    blocks = []
    every = [one for one in of_options(RunConfig) if not one.key.startswith(OF_THE_RUN)]
    nested = {f"{key}." for key in (*_SECTIONS.values(), "d") if key}
    for title, key in _SECTIONS.items():
        if not key:
            rows = [one for one in every if not one.key.startswith(tuple(nested))]
        else:
            rows = [one for one in every if one.key.startswith(f"{key}.")]
        if key == "g":
            rows = [dataclasses.replace(one, key=one.key.removeprefix("g.")) for one in rows]
            blocks += [
                f"## {title}",
                "The keys of all players: `g.optimizer.lr`, `d.optimizer.lr`, `players.NAME.optimizer.lr`, …",
                _table(rows),
            ]
        else:
            blocks += [f"## {title}", _table(rows)]
    for key, folder in _REGISTRIES.items():
        blocks += [f"## {key}", *_registry(folder)]
    return "\n\n".join([_HEAD.strip(), contents(blocks), *blocks]) + "\n"


def contents(blocks: Iterable[str]) -> str:
    """Return a list of the sections with links, each with its sub-sections. blocks: of Markdown, in order."""
    anchors: set[str] = set()
    lines: list[list[str]] = []
    for level, title in re.findall(r"^(###?) (.+)$", "\n".join(blocks), re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        # the second of a name has no anchor that GitHub and the site agree on
        link = title if anchor in anchors else f"[{title}](#{anchor})"
        anchors.add(anchor)
        if level == "##":
            lines.append([link])
        else:
            lines[-1].append(link)
    rows = [f"- {first}: {', '.join(rest)}" if rest else f"- {first}" for first, *rest in lines]
    return "\n".join(["**Contents**", "", *rows])


def of_options(kind: type, path: str = "") -> Iterator[Setting]:
    """Yield the settings of an options class and of classes nested in it, with their defaults."""
    for field in fields_of(kind).values():
        key = f"{path}{field.name}"
        is_nested = field.inner is not None and field.category is None and not field.is_value_or_map
        if not is_nested or field.is_list or field.is_map or field.is_optional:
            meaning = meanings(kind).get(field.name, "")
            yield Setting(key=key, meaning=meaning, kind=describe(field.hint), **default_of(field.default))
        if is_nested and not field.is_map:
            yield from of_options(field.inner, f"{key}.{'N.' if field.is_list else ''}")


def _registry(folder: str) -> Iterator[str]:
    if folder == "optim":
        yield f"Classes of torch.optim ({', '.join(TORCH_OPTIMISERS)}), and:"
    tables = {name: list(of_options(registry.options(folder, name))) for name in registry.names(folder)}
    shared = [row for row in next(iter(tables.values())) if all(row in rows for rows in tables.values())]
    if shared:
        yield "All of them have:"
        yield _table(shared)
    for name, settings in tables.items():
        yield f"### {name}\n\n{registry.summary(folder, name)}"
        if rows := [s for s in settings if s not in shared and f"{name}.{s.key}" not in OF_THE_RUN]:
            yield _table(rows)


def _table(settings: Iterable[Setting]) -> str:
    rows, notes = [], []
    for one in settings:
        (meaning, rest), (values, further) = split(one.meaning), split(one.kind)
        rows.append(f"| `{one.key}` | {_cell(meaning)} | {_cell(values)} | {_default(one)} |")
        notes += [f"- `{one.key}`: {rest}"] if rest else []
        notes += [f"- values of `{one.key}`, in full: {one.kind}"] if further else []
    table = "\n".join(["| setting | meaning | values | default |", "|---|---|---|---|", *rows])
    return "\n\n".join([table, *(["\n".join(notes)] if notes else [])])


def _default(setting: Setting) -> str:
    return "required" if setting.required else f"`{json.dumps(setting.default, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
