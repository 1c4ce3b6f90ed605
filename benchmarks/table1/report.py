"""Files of table 1: JSON, Markdown and, with matplotlib, a plot."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.record import machine
from benchmarks.table1.plot import Bar, plot
from benchmarks.table1.rows import RowResult, Table, Table1Options
from paragan.core.files import write_text

Results = Sequence[tuple[Table, Sequence[RowResult]]]
_HEAD = ("row", "batch", "updates", "time", "95 %", "poster", "D loss", "poster", "G loss", "poster")
_QUALITY = {"l1": "val. L1", "psnr": "val. PSNR", "ssim": "val. SSIM", "fd[mnist]": "fd[mnist]"}


def write(options: Table1Options, results: Results, out: Path, today: str, complete: bool = False) -> list[Path]:
    """Write the files to `out` and return their paths. today: date of the first measurement.

    The plot is left out where matplotlib is not installed.
    """
    record = {
        "date": today,
        "machine": machine(),
        "torch": importlib.metadata.version("torch"),
        "threads": 1,
        "complete": complete,
        "note": note(options),
        "options": {key: value for key, value in asdict(options).items() if key not in ("data", "mnist")},
        "tables": [{"recipe": table.recipe, "rows": list(map(row_to_json, rows))} for table, rows in results],
    }
    texts = {"json": json.dumps(record, indent=1) + "\n", "md": _page(record, results)}
    if importlib.util.find_spec("matplotlib") is not None:
        texts["svg"] = plot(_bars(results))
    paths = [out / f"{today}-table1.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def row_to_json(result: RowResult) -> dict[str, Any]:
    """A row as plain JSON values, with its median time."""
    return {**result.to_json(), "time": None if result.error else interval(result.ratios)}


def interval(ratios: Sequence[float]) -> dict[str, float]:
    """Median of the rounds and its 95 % bootstrap interval.

    With three or more rounds, the first one is left out: it includes memory allocation.
    """
    values = ratios[1:] if len(ratios) > 2 else ratios
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return {"median": statistics.median(values), "low": medians[50], "high": medians[1949], "rounds": len(values)}


def note(options: Table1Options) -> str:
    """What a reader of the numbers has to know."""
    return (
        f"epochs of {options.images} facades and {options.mnist_images} digits (the poster: 400 facades, 100 epochs); "
        f"number of epochs: {options.epochs}; validated on {options.num_validation} pairs, sampled in training mode, "
        f"without EMA; data parallel and ZeRO on {options.ranks} rank{'s' if options.ranks > 1 else ''}; time: CPU "
        "seconds of an epoch with one thread, divided by the baseline's in the same group, median of the rounds; "
        "losses: means over the last epoch, for pix2pix D's with its factor 0.5 and G's with 100 L1"
    )


def table(rows: Sequence[RowResult]) -> str:
    """The rows as a Markdown table; a baseline that was measured again for other rows appears once."""
    keys = [(result.row.name, result.batch) for result in rows]
    rows = [result for number, result in enumerate(rows) if keys.index(keys[number]) == number]
    scores = [name for name in _QUALITY if any(name in result.metrics for result in rows)]
    head = [*_HEAD, *(_QUALITY[name] for name in scores)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(_cells(result, scores) for result in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(result: RowResult, scores: Sequence[str]) -> list[str]:
    poster = result.row.poster
    numbers = ("", "", "")
    if poster is not None:
        numbers = (f"{poster.ratio:.3f}", f"{poster.d_loss:.3f}", f"{poster.g_loss:.3f}")
    if result.error is not None:
        reason = f"not run: {result.error.replace('|', '/')}"
        cells = [reason, "", "", numbers[0], "", numbers[1], "", numbers[2]]
        return [result.row.name, str(result.batch), *cells, *[""] * len(scores)]
    time = interval(result.ratios)
    span = "" if result.is_base else f"{time['low']:.2f} to {time['high']:.2f}"
    times = [f"{result.updates[0]:g}", f"{time['median']:.2f}", span, numbers[0]]
    losses = [f"{result.d_loss:.3f}", numbers[1], f"{result.g_loss:.3f}", numbers[2]]
    quality = [f"{result.metrics[name]:.4g}" if name in result.metrics else "" for name in scores]
    return [result.row.name, str(result.batch), *times, *losses, *quality]


def _page(record: dict[str, Any], results: Results) -> str:
    note = record["note"]
    about = f"{record['date']}, {record['machine']}, torch {record['torch']}. {note[0].upper()}{note[1:]}."
    blocks = [f"# Table 1\n\n{about}"]
    for one, rows in results:
        base = rows[0]
        per_image = sum(base.seconds) / (base.images * record["options"]["epochs"])
        blocks.append(f"## {one.recipe}\n\nBaseline: {per_image:.4g} CPU seconds per image.\n\n{table(rows)}")
    return "\n\n".join(blocks) + "\n"


def _bars(results: Results) -> list[tuple[str, list[Bar]]]:
    """Title and bars of each table."""
    panels = []
    for one, rows in results:
        bars = []
        for result in rows:
            if result.is_base or result.error is not None:
                continue
            time = interval(result.ratios)
            name = result.row.name
            if result.batch != rows[0].batch:
                name = f"{name}, batch {result.batch}"
            poster = None if result.row.poster is None else result.row.poster.ratio
            bars.append(Bar(name, time["median"], time["low"], time["high"], poster))
        panels.append((one.recipe, bars))
    return panels
