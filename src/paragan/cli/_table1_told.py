"""The table as JSON, as Markdown and as a drawing."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import random
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paragan.cli._table1_drawn import drawn
from paragan.cli._table1_rows import Asked, Measured, Table
from paragan.core.files import write_text

Found = Sequence[tuple[Table, Sequence[Measured]]]
_HEAD = ("row", "batch", "updates", "time", "95 %", "poster", "D loss", "poster", "G loss", "poster")
_QUALITY = {"l1": "val. L1", "psnr": "val. PSNR", "ssim": "val. SSIM", "fd[mnist]": "fd[mnist]"}


def write(asked: Asked, found: Found, out: Path, today: str, complete: bool = False) -> list[Path]:
    """The three files in `out`, as far as it is. today: the day it began."""
    record = {
        "date": today,
        "machine": machine(),
        "torch": importlib.metadata.version("torch"),
        "threads": 1,
        "complete": complete,
        "note": note(asked),
        "asked": {key: value for key, value in asdict(asked).items() if key not in ("data", "mnist")},
        "tables": [{"recipe": table.recipe, "rows": [told(one) for one in rows]} for table, rows in found],
    }
    texts = {"json": json.dumps(record, indent=1) + "\n", "md": _page(record, found), "svg": drawn(_bars(found))}
    paths = [out / f"{today}-table1.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def told(one: Measured) -> dict[str, Any]:
    """A row for JSON."""
    return {**one.plain(), "time": None if one.error else interval(one.ratios)}


def interval(ratios: Sequence[float]) -> dict[str, float]:
    """Median of the rounds and its 95 % bootstrap interval. The first round, which allocates, is left out of three."""
    kept = ratios[1:] if len(ratios) > 2 else ratios
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(kept, k=len(kept))) for _ in range(2000))
    return {"median": statistics.median(kept), "low": medians[50], "high": medians[1949], "rounds": len(kept)}


def note(asked: Asked) -> str:
    """What has to be known to read the numbers."""
    return (
        f"epochs of {asked.images} facades and {asked.mnist_images} digits (the poster: 400 facades, 100 epochs); "
        f"{asked.epochs} of them; validated on {asked.num_validation} pairs, sampled as in training, no average; "
        f"data parallel and ZeRO on {asked.ranks} rank{'s' if asked.ranks > 1 else ''}; time: CPU seconds of an epoch, "
        "at one thread, over those of the baseline beside it, median of the rounds; losses: means over the last "
        "epoch, for pix2pix D's with its factor 0.5 and G's with 100 L1"
    )


def table(rows: Sequence[Measured]) -> str:
    """In Markdown; a baseline that was measured anew for other rows is shown once."""
    seen = [(one.row.name, one.batch) for one in rows]
    rows = [one for number, one in enumerate(rows) if seen.index((one.row.name, one.batch)) == number]
    scores = [name for name in _QUALITY if any(name in one.metrics for one in rows)]
    head = [*_HEAD, *(_QUALITY[name] for name in scores)]
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *(_cells(one, scores) for one in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine() -> str:
    """The kind of processor, and whether it multiplies bfloat16."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return model + "".join(f", {'with' if flag in flags else 'without'} {flag}" for flag in ("avx512_bf16", "amx_bf16"))


def _cells(one: Measured, scores: Sequence[str]) -> list[str]:
    poster = one.row.poster
    theirs = ["", "", ""] if poster is None else [f"{v:.3f}" for v in (poster.ratio, poster.d_loss, poster.g_loss)]
    if one.error is not None:
        found = [f"not run: {one.error.replace('|', '/')}", "", "", theirs[0], "", theirs[1], "", theirs[2]]
        return [one.row.name, str(one.batch), *found, *[""] * len(scores)]
    time = interval(one.ratios)
    span = "" if one.base else f"{time['low']:.2f} to {time['high']:.2f}"
    found = [f"{one.updates[0]:g}", f"{time['median']:.2f}", span, theirs[0]]
    losses = [f"{one.d_loss:.3f}", theirs[1], f"{one.g_loss:.3f}", theirs[2]]
    quality = [f"{one.metrics[name]:.4g}" if name in one.metrics else "" for name in scores]
    return [one.row.name, str(one.batch), *found, *losses, *quality]


def _page(record: dict[str, Any], found: Found) -> str:
    note = record["note"]
    about = f"{record['date']}, {record['machine']}, torch {record['torch']}. {note[0].upper()}{note[1:]}."
    parts = [f"# Table 1\n\n{about}"]
    for one, rows in found:
        base = rows[0]
        per = sum(base.seconds) / (base.images * record["asked"]["epochs"])
        parts.append(f"## {one.recipe}\n\nBaseline: {per:.4g} CPU seconds per image.\n\n{table(rows)}")
    return "\n\n".join(parts) + "\n"


def _bars(found: Found) -> list[tuple[str, list[tuple[str, float, float, float, float | None]]]]:
    """Title and bars: name, median, low, high, the poster's."""
    bars = []
    for one, rows in found:
        shown = [row for row in rows if not row.base and row.error is None]
        named = []
        for row in shown:
            time, poster = interval(row.ratios), row.row.poster
            name = row.row.name if row.batch == rows[0].batch else f"{row.row.name}, batch {row.batch}"
            named.append((name, time["median"], time["low"], time["high"], None if poster is None else poster.ratio))
        bars.append((one.recipe, named))
    return bars
