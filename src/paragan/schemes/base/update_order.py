"""Recorded order of updates: what each update of a concurrent run used, for a repetition."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from paragan.core.errors import ConfigError
from paragan.core.files import read_json_lines
from paragan.core.printable import counted
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.game.gan import GAN


def read_order(folder: Path, roles: Roles, gan: GAN) -> dict[Side, Sequence[int]]:
    """Read the order for the players of this rank, of the session that began at the game's step.

    Raises `ConfigError` if that session had other ranks, or none.
    """
    world = roles.batch_world
    order: dict[Side, Sequence[int]] = {}
    for side in roles.sides:
        by_rank = read_used(folder, side, gan.clock.step)
        if len(by_rank) != world.size:
            raise ConfigError(
                f"scheme.order: {folder} has a record of {counted(len(by_rank), 'rank')} of {side.value}, "
                f"but this run has {world.size}; use as many devices as the recorded run"
            )
        order[side] = by_rank[world.rank]
    return order


def next_used(order: Sequence[int] | None, number: int) -> int | None:
    """Return what update `number` must use; None without a recorded order."""
    if order is None:
        return None
    if number >= len(order):
        raise ConfigError(
            f"scheme.order ends after {counted(number, 'update')}, but the run is longer; reduce train.kimg"
        )
    return order[number]


def read_used(folder: Path, side: Side, start: int = 0) -> list[list[int]]:
    """Return what each update used, by rank, in the session that began after `start` steps.

    Raises `ConfigError` without a record of it.
    """
    by_rank: list[list[int]] = []
    for line in _session(folder / "metrics.jsonl", start):
        delays = line.get(side.value, {})
        lists = delays.get("used", []) if isinstance(delays, dict) else None
        if not _are_counts(lists) or (by_rank and len(lists) != len(by_rank)):
            raise ConfigError(f"scheme.order: {folder}/metrics.jsonl has an invalid line of delays; use another run")
        by_rank = by_rank or [[] for _ in lists]
        for used, more in zip(by_rank, lists, strict=True):
            used += more
    if not by_rank:
        raise ConfigError(
            f"scheme.order: {folder}/metrics.jsonl has no delays of {side.value} in a session from step {start}; "
            "pass the run folder of an asynchronous run, and begin at the same step"
        )
    return by_rank


def _session(record: Path, start: int) -> list[Mapping[str, Any]]:
    """Return the lines of kind `delays` of the last session from a step."""
    delays: list[Mapping[str, Any]] = []
    is_inside = False
    try:
        for line in read_json_lines(record):
            if line.get("kind") == "start":
                is_inside = line.get("step") == start
                if is_inside:
                    delays = []  # an earlier session from this step was repeated
            elif is_inside and line.get("kind") == "delays":
                delays.append(line)
    except OSError as error:
        raise ConfigError(f"scheme.order: cannot read the record {record}: {error.strerror}") from None
    return delays


def _are_counts(lists: Any) -> TypeGuard[list[list[int]]]:
    return isinstance(lists, list) and all(
        isinstance(counts, list) and all(type(n) is int and 0 <= n < 1 << 48 for n in counts) for counts in lists
    )
