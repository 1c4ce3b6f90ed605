"""Rows of the comparison, and the table that they make."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from benchmarks.compare import peers
from benchmarks.compare.side import Failed, Side
from benchmarks.compare.works import describe, variants
from benchmarks.paired_timing import compare

Row = dict[str, Any]
_HEAD = "| peer | version | work | G / D, theirs | G / D, ours | equal | defaults |"


def names() -> list[str]:
    """Return all peers: the files of `peers/`."""
    return sorted(module.name for module in pkgutil.iter_modules(peers.__path__))


def rows(peer: str, paths: Mapping[str, str], pairs: int) -> Iterable[Row]:
    """Compare all works of a peer; a work that cannot run has a `reason`."""
    adapter: Any = importlib.import_module(f"benchmarks.compare.peers.{peer}")
    words = [paths[peer]] if peer in paths else []
    for work in adapter.WORKS:
        yield {"peer": peer, "work": work, "what": describe(work), **_measure(peer, work, words, pairs)}


def _measure(peer: str, work: str, words: list[str], pairs: int) -> Row:
    found: Row = {}
    for column, settings in variants(work).items():
        sides: list[Side] = []
        try:
            for name, more in ((peer, words), ("paragan", settings)):
                sides.append(Side(name, work, *more))
                if "reason" in sides[-1].found:
                    at = "" if name == peer else "paragan: "
                    return {"reason": at + sides[-1].found["reason"]}
            theirs, ours = sides
            found |= {"theirs": theirs.found, "ours": ours.found}
            ratio = compare(theirs, ours, pairs, 1, lambda: theirs.seconds + ours.seconds)  # noqa: B023 called here
            found[column] = asdict(ratio)
        except Failed as error:
            return {"reason": str(error)}
        finally:
            for side in sides:
                side.close()
    return found


def markdown(found: Iterable[Row]) -> str:
    """Return the rows as a table: theirs / ours, with the 95 % interval of the median."""
    lines = [_HEAD, "|" + "---|" * _HEAD.count(" | ") + "---|"]
    for row in found:
        name = f"| {row['peer']} | "
        work = f"{row['work']}: {row['what']}"
        if "reason" in row:
            lines.append(f"{name} | {work} | | | not run: {row['reason']} | |")
            continue
        stand_ins = ", ".join(row["theirs"]["stand_ins"])
        version = row["theirs"]["version"] + (f" (stand-ins: {stand_ins})" if stand_ins else "")
        counts = [" / ".join(f"{n:,}" for n in row[side]["parameters"]) for side in ("theirs", "ours")]
        lines.append(
            f"{name}{version} | {work} | {' | '.join((*counts, *map(_cell, (row['equal'], row['defaults']))))} |"
        )
    return "\n".join(lines)


def _cell(ratio: Mapping[str, float]) -> str:
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
