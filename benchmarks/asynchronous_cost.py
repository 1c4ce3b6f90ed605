"""What each player's part of a step costs here, one part at a time, so that two threads do not disturb one another.

Asynchronous rows are played at S = 0, where the same parts are made in turn. All rows take turns, round by round, so
that a machine that slows down slows all of them.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.asynchronous_rows import Row, Table
from benchmarks.asynchronous_run import Game, begun, identity, timed

Cost = Mapping[str, float]  # seconds of the processor per step, by player

_WARM_UP, _ROUNDS, _STEPS = 2, 3, 8  # steps of a round: so many that a lazy penalty of the recipes is due once


def costs(table: Table, rows: Sequence[Row], data: str | None, keep: Path) -> dict[str, Cost]:
    """By row; what has been measured before is not measured again."""
    paths = {row.name: keep / table.name / f"{identity(table, row)}-cost.json" for row in rows}
    missing = [row for row in rows if not paths[row.name].is_file()]
    for name, cost in _measured(table, missing, data, keep).items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_text(json.dumps(cost))
    return {name: json.loads(path.read_text()) for name, path in paths.items()}


def _measured(table: Table, rows: Sequence[Row], data: str | None, keep: Path) -> dict[str, Cost]:
    games = {row.name: begun(table, _in_turn(row), 0, data, keep) for row in rows}
    seconds = {name: timed(game.gan) for name, game in games.items()}
    found: dict[str, dict[str, list[float]]] = {name: {"g": [], "d": []} for name in games}
    for game in games.values():
        _play(game, _WARM_UP)
    for _ in range(_ROUNDS):
        for name, game in games.items():
            for spent in seconds[name].values():
                spent.clear()
            _play(game, _STEPS)
            for side, spent in seconds[name].items():
                found[name][side].append(sum(spent) / _STEPS)
    for game in games.values():
        game.scheme.close()
    return {name: {side: statistics.median(rounds) for side, rounds in of.items()} for name, of in found.items()}


def _play(game: Game, steps: int) -> None:
    for _ in range(steps):
        game.scheme.step(game.gan, game.batches)
    game.scheme.quiesce()


def _in_turn(row: Row) -> Row:
    in_turn = {"staleness": 0}
    return row if row.scheme is None else replace(row, scheme={**row.scheme, **in_turn}, orders={})
