"""Recorded order of updates: what each update of an asynchronous run used, for a repetition."""

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
from paragan.game.player import Player

_MAX_LINE_BYTES = 1 << 24  # limit for files that are not a record


def read_order(folder: Path, roles: Roles, gan: GAN) -> dict[Side, Sequence[int]]:
    """Read the order for the players of this rank.

    Raises `ConfigError` without a record, for another number of ranks, or on resume.
    """
    if any(isinstance(player, Player) and player.version for player in (gan.g, gan.d)):
        problem = "cannot be used to resume a run, only to start one"
        raise ConfigError(f"scheme.order {problem}; pass another --out")
    recorded = {side: read_used(folder, side) for side in roles.sides}
    for side, by_rank in recorded.items():
        num_ranks = len(roles.ranks.get(side, (0,)))
        if len(by_rank) != num_ranks:
            raise ConfigError(
                f"scheme.order: {folder} has a record of {len(by_rank)} ranks of {side.value}, "
                f"but this run has {num_ranks}; use as many devices as the recorded run"
            )
    return {side: by_rank[roles.batch_world.rank] for side, by_rank in recorded.items()}


def read_used(folder: Path, side: Side) -> list[list[int]]:
    """Return what each update used, by rank of the role, from the start to the first stop."""
    by_rank: list[list[int]] = []
    for line in _first_session(folder / "metrics.jsonl"):
        lists = line.get(side.value, {}).get("used", [])
        if not _are_counts(lists):
            problem = f"{folder}/metrics.jsonl has an invalid line of delays"
            raise ConfigError(f"scheme.order: {problem}; use another run")
        by_rank = by_rank or [[] for _ in lists]
        for used, more in zip(by_rank, lists, strict=True):
            used += more
    if not by_rank:
        raise ConfigError(
            f"scheme.order: {folder}/metrics.jsonl has no delays of {side.value}; pass the run "
            "folder of an asynchronous run"
        )
    return by_rank


def _first_session(record: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of kind `delays` before the second start."""
    starts = 0
    try:
        with open_regular_file(record) as lines:
            while text := lines.readline(_MAX_LINE_BYTES):
                line = _parsed(text)
                starts += line.get("kind") == "start"
                if starts > 1:
                    return
                if line.get("kind") == "delays":
                    yield line
    except OSError as error:
        problem = f"cannot read the record {record}: {error.strerror}"
        raise ConfigError(f"scheme.order: {problem}") from None


def _parsed(text: bytes) -> Mapping[str, Any]:
    """Return one line of the record; empty if a kill truncated it."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return line if isinstance(line, dict) else {}


def _are_counts(lists: Any) -> bool:
    return isinstance(lists, list) and all(
        isinstance(counts, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in counts) for counts in lists
    )
