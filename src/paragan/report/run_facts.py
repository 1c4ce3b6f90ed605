"""Texts of the report from an untrusted record: header, advice, events, settings, commands."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.report import panels
from paragan.report.record import History
from paragan.report.record_values import (
    RecordEntry,
    first_items,
    first_pairs,
    metric_names,
    setting_text,
    single_line,
    to_mapping,
    to_number,
)
from paragan.report.scale import format_number

_MAX_SCORES = 20  # in the list of events
_MAX_METRICS = 3  # of a score in the list of events


def header_facts(history: History) -> list[str]:
    """Return data, shape of the grid, parameters and device of each player, and ranks; each if known."""
    start = history.start
    data = to_mapping(start.get("data"))
    images = to_number(data.get("images"))
    noun = "samples" if "tensors" in data else "images"
    size = " × ".join(single_line(n) for n in first_items(data.get("shape"), 3))
    parts = (single_line(data.get("name")), "" if images is None else f"{images:,.0f} {noun}", size)
    facts = [", ".join(part for part in parts if part)]
    grid = history.population.grid
    facts.append("" if grid is None else grid.shape_text)
    strategies = []
    for key, player in first_pairs(start.get("players")):
        if isinstance(player, Mapping):
            name = single_line(key).upper() if len(single_line(key)) == 1 else single_line(key)
            weights = to_number(player.get("weights"))
            count = "" if weights is None else f" {weights:,.0f} parameters"
            place = f"{single_line(player.get('precision'))} on {single_line(player.get('device'))}"
            facts.append(f"{name}{count}, {place}")
            strategies.append(f"{name} {single_line(player.get('strategy'))}")
    ranks = to_number(start.get("ranks"))
    hosts = to_number(start.get("hosts"))
    if ranks is not None and ranks > 1:
        on = "" if hosts is None else f" on {hosts:,.0f} host{'s' if hosts > 1 else ''}"
        facts.append(f"{ranks:,.0f} ranks{on}: {', '.join(strategies)}")
    return [fact for fact in facts if fact]


def advice_texts(entry: RecordEntry) -> dict[str, str]:
    """Return the texts of an advice by field."""
    value = to_number(entry.values.get("value"))
    texts = {name: single_line(entry.values.get(name)) for name in ("name", "means", "try")}
    return texts | {"value": "" if value is None else format_number(value), "step": f"{entry.step:,}"}


def list_events(history: History) -> list[tuple[int, str]]:
    """Return step and text of each event, the latest first.

    Of evaluations and checkpoints, only the latest.
    """
    names = metric_names(history.scores)[:_MAX_METRICS]
    best = panels.best_evaluation(names[0], history.scores) if names else None
    scores = []
    for entry in history.scores[-_MAX_SCORES:]:
        known = [(name, entry.numbers[name]) for name in names if name in entry.numbers]
        values = ", ".join(f"{name} {format_number(value)}" for name, value in known)
        scores.append((entry.step, f"score: {values}" + (" (best)" if entry is best else "")))
    saved = [(step, f"checkpoint {path.rpartition('/')[2]}") for step, path in history.saves]
    first = [event for event in history.events if event == (0, "started")]
    later = [event for event in history.events if event != (0, "started")]
    return sorted([*first, *scores, *saved, *later], key=lambda event: event[0])[::-1]  # stable within a step


def changed_settings(start: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return each setting that differs from the recipe, with the value of recipe and run."""
    pairs = [(key, first_items(values)) for key, values in first_pairs(start.get("changed"))]
    return [(single_line(k), setting_text(v[0]), setting_text(v[1])) for k, v in pairs if len(v) == 2]


def list_commands(folder: Path, history: History) -> list[tuple[str, str]]:
    """Return commands to copy, derived only from the folder because the record is untrusted.

    They never include `--trust`: the user decides whether code named by a config may run. For a
    finished run, the command to continue doubles its length. A run whose networks are defined in a
    program has none.
    """
    if history.start.get("commands") == {}:
        return []
    program = program_command()
    run = shlex.quote(str(folder))
    # without a slash, it could be the name of a recipe
    path = str(folder) if os.sep in str(folder) else f"./{folder}"
    resume = ("resume", f"{program} train {shlex.quote(path)}")
    if history.total_kimg is not None and history.kimg >= history.total_kimg:
        resume = ("train twice as long", f"{resume[1]} train.kimg={2 * history.kimg:g}")
    pairs = to_number(to_mapping(history.start.get("data")).get("held_out_pairs"))
    num = int(pairs) if pairs is not None and 1 <= pairs < 64 else 64
    return [
        resume,
        ("sample", f"{program} sample {run} --num {num}"),
        ("export", f"{program} export {run}"),
        ("score", f"{program} eval {run} --json"),
    ]
