"""Facts in the header of the report, from the untrusted start line of a record."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from paragan.report.record_values import single_line, to_number

_MAX_ITEMS = 200


def player_facts(players: object) -> list[str]:
    """Return parameters, precision and device of each player."""
    if not isinstance(players, Mapping):
        return []
    items = islice(players.items(), _MAX_ITEMS)
    known = [(name, player) for name, player in items if isinstance(player, Mapping)]
    return [_player_fact(single_line(name).upper(), player) for name, player in known]


def _player_fact(name: str, player: Mapping[str, Any]) -> str:
    weights = to_number(player.get("weights"))
    count = f" {weights:,.0f} parameters" if weights is not None else ""
    precision = single_line(player.get("precision"))
    return f"{name}{count}, {precision} on {single_line(player.get('device'))}"


def data_fact(data: object) -> str:
    """Return name, number of images and shape of the data set."""
    if not isinstance(data, Mapping):
        return ""
    shape = data.get("shape")
    images = to_number(data.get("images"))
    size = " × ".join(single_line(n) for n in shape[:3]) if isinstance(shape, list) else ""
    count = f"{images:,.0f} images" if images is not None else ""
    return ", ".join(part for part in (single_line(data.get("name")), count, size) if part)


def ranks_fact(start: Mapping[str, Any]) -> str:
    """Return the number of ranks and the strategy of each player; empty for one rank."""
    size = to_number(start.get("ranks"))
    hosts = to_number(start.get("hosts"))
    players = start.get("players")
    if size is None or not size > 1:
        return ""
    items = islice(players.items(), _MAX_ITEMS) if isinstance(players, Mapping) else ()
    known = ((single_line(k).upper(), p) for k, p in items if isinstance(p, Mapping))
    strategies = (f"{name} {single_line(player.get('strategy'))}" for name, player in known)
    on = f" on {hosts:,.0f} host{'s' if hosts > 1 else ''}" if hosts is not None else ""
    return f"{size:,.0f} ranks{on}: {', '.join(strategies)}"
