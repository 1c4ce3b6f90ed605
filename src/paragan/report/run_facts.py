"""Texts of the report from an untrusted record: header, advice, events, settings, commands."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paragan.core.command import program_command
from paragan.report import panels
from paragan.report.record import History
from paragan.report.record_entry import RecordEntry, metric_names
from paragan.report.record_values import (
    first_items,
    first_pairs,
    setting_text,
    single_line,
    to_mapping,
    to_number,
)
from paragan.report.scale import format_number

_MAX_SCORES = 20  # in the list of events
_MAX_METRICS = 3  # of a score in the list of events
_DELAYS = {
    "lag": "Lag of the opponent of {}, in steps",
    "age": "Age of the images used by {}, in steps",
    "wait_ms": "Wait of {} for the other player, in milliseconds",
}


def player_facts(start: Mapping[str, Any]) -> list[str]:
    """Return parameters, precision and device of each player."""
    return [_player_fact(name, player) for name, player in _players(start)]


def _players(start: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    pairs = ((k, v) for k, v in first_pairs(start.get("players")) if isinstance(v, Mapping))
    texts = ((single_line(name), player) for name, player in pairs)
    return [(text.upper() if len(text) == 1 else text, player) for text, player in texts]


def _player_fact(name: str, player: Mapping[str, Any]) -> str:
    weights = to_number(player.get("weights"))
    count = f" {weights:,.0f} parameters" if weights is not None else ""
    precision = single_line(player.get("precision"))
    return f"{name}{count}, {precision} on {single_line(player.get('device'))}"


def data_fact(start: Mapping[str, Any]) -> str:
    """Return name, number of images and shape of the data set."""
    data = to_mapping(start.get("data"))
    images = to_number(data.get("images"))
    noun = "samples" if "tensors" in data else "images"
    count = f"{images:,.0f} {noun}" if images is not None else ""
    size = " × ".join(single_line(n) for n in first_items(data.get("shape"), 3))
    return ", ".join(part for part in (single_line(data.get("name")), count, size) if part)


def ranks_fact(start: Mapping[str, Any]) -> str:
    """Return the number of ranks and the strategy of each player; empty for one rank."""
    size = to_number(start.get("ranks"))
    hosts = to_number(start.get("hosts"))
    if size is None or not size > 1:
        return ""
    players = _players(start)
    strategies = (f"{name} {single_line(player.get('strategy'))}" for name, player in players)
    on = f" on {hosts:,.0f} host{'s' if hosts > 1 else ''}" if hosts is not None else ""
    return f"{size:,.0f} ranks{on}: {', '.join(strategies)}"


def advice_texts(entry: RecordEntry) -> dict[str, str]:
    """Return the texts of an advice by field."""
    value = to_number(entry.values.get("value"))
    texts = {name: single_line(entry.values.get(name)) for name in ("name", "means", "try")}
    number = "" if value is None else format_number(value)
    return texts | {"value": number, "step": f"{entry.step:,}"}


def delay_tables(history: History) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the histograms of delays as tables of value and share."""
    tables = []
    for (side, name), bins in history.delays.items():
        total = sum(bins.values())
        sign = "≤ " if name == "wait_ms" else ""
        rows = [(f"{sign}{v}", f"{bins[v] / total:.1%}") for v in sorted(bins) if total]
        if rows:
            tables.append((_DELAYS[name].format(side.upper()), rows))
    return tables


def phase_rows(history: History) -> list[tuple[str, str, str, str]]:
    """Return phase, share of the time of all ranks, and the rank with the largest share, with it."""
    total = sum(seconds.total() for seconds in history.phases.values())
    ranks: Counter[int] = Counter()
    for seconds in history.phases.values():
        ranks.update(seconds)
    rows = []
    for name, seconds in history.phases.items():
        if not total or not seconds.total():
            continue
        shares = {rank: spent / ranks[rank] for rank, spent in seconds.items() if ranks[rank]}
        rank = max(shares, key=shares.__getitem__)
        most = (str(rank), f"{shares[rank]:.1%}") if len(ranks) > 1 else ("", "")
        rows.append((name.replace("_", " "), f"{seconds.total() / total:.1%}", *most))
    return rows


def list_events(history: History) -> list[tuple[int, str]]:
    """Return step and text of each event, the latest first.

    Of evaluations and checkpoints, only the latest.
    """
    saved = [(step, f"checkpoint {path.rpartition('/')[2]}") for step, path in history.saves]
    first = [event for event in history.events if event == (0, "started")]
    later = [event for event in history.events if event != (0, "started")]
    ordered = [*first, *_score_events(history.scores), *saved, *later]  # the order within a step
    return sorted(ordered, key=lambda event: event[0])[::-1]


def _score_events(scores: list[RecordEntry]) -> list[tuple[int, str]]:
    """Return the latest evaluations, with a mark on the best by the first metric."""
    names = metric_names(scores)[:_MAX_METRICS]
    best = panels.best_evaluation(names[0], scores) if names else None
    events = []
    for entry in scores[-_MAX_SCORES:]:
        known = [(name, entry.numbers[name]) for name in names if name in entry.numbers]
        values = ", ".join(f"{name} {format_number(value)}" for name, value in known)
        events.append((entry.step, f"score: {values}" + (" (best)" if entry is best else "")))
    return events


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
