"""What each update of a recorded run has used, so that the run can be repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paragan.core.errors import ConfigError
from paragan.core.files import open_regular_file
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.game.gan import GAN

_LINE = 1 << 24  # bytes; a line of a record that was never ours could be anything


def read(folder: Path, roles: Roles, gan: GAN) -> dict[Side, Sequence[int]]:
    """For the players of this rank. `ConfigError` where the record has none, is of other ranks, or a run goes on."""
    if any(getattr(seat, "updates", None) is not None and seat.version for seat in (gan.g, gan.d)):
        raise ConfigError("scheme.order: found a run that goes on, expected one from its start; use another --out")
    recorded = {side: used(folder, side) for side in roles.sides}
    for side, by_rank in recorded.items():
        ranks = len(roles.ranks.get(side, (0,)))
        if len(by_rank) != ranks:
            raise ConfigError(
                f"scheme.order: {folder}: found {len(by_rank)} ranks of {side.value} on record, expected {ranks}; "
                "give as many devices as the run had"
            )
    return {side: by_rank[roles.batch_world.rank] for side, by_rank in recorded.items()}


def used(folder: Path, side: Side) -> list[list[int]]:
    """By rank of its role: what each update used, from the start of the run to its first stop."""
    by_rank: list[list[int]] = []
    for told in _first_session(folder / "metrics.jsonl"):
        lists = told.get(side.value, {}).get("used", [])
        if not _are_counts(lists):
            raise ConfigError(f"scheme.order: {folder}: found an odd line of delays in metrics.jsonl, expected lists")
        by_rank = by_rank or [[] for _ in lists]
        for held, new in zip(by_rank, lists, strict=True):
            held += new
    if not by_rank:
        raise ConfigError(
            f"scheme.order: {folder}: found no delays of {side.value} in metrics.jsonl, expected the run folder of an "
            "asynchronous run"
        )
    return by_rank


def _first_session(record: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of kind `delays` before the second start."""
    starts = 0
    try:
        with open_regular_file(record) as lines:
            while line := lines.readline(_LINE):
                told = _parsed(line)
                starts += told.get("kind") == "start"
                if starts > 1:
                    return
                if told.get("kind") == "delays":
                    yield told
    except OSError as error:
        raise ConfigError(f"scheme.order: {record}: {error.strerror}, expected the record of a run") from None


def _parsed(line: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):  # cut short by a kill
        return {}
    return told if isinstance(told, dict) else {}


def _are_counts(lists: Any) -> bool:
    return isinstance(lists, list) and all(
        isinstance(held, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in held) for held in lists
    )
