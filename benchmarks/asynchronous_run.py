"""One run of a row: scores along the way, losses, and what each player's part cost."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks import asynchronous_ring as ring
from benchmarks.asynchronous_rows import Row, Table
from paragan import build
from paragan.build.evaluation import extractor_context, scorer
from paragan.config import RunConfig, read_recipe
from paragan.core.dist import ALONE
from paragan.core.errors import ConfigError
from paragan.core.types import Batch
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.loading.loader import Loader
from paragan.schemes import shared_fakes

NUM_BINS = 40  # of the curves of losses
_LOSSES = {"g": "g/loss/adversarial", "d": "d/loss/adversarial"}


@dataclass(frozen=True)
class Game:
    """A run before its first step."""

    gan: GAN
    scheme: Any
    batches: Iterator[Batch]
    score: Callable[[Player, Prior], dict[str, float]]


def begun(table: Table, row: Row, seed: int, data: str | None, keep: Path) -> Game:
    """By the library's own parts."""
    row = _ordered(table, row, keep) if row.orders else row
    if table.recipe:
        game = _of_recipe(table, row, seed, data, keep)
    else:
        scheme: Any = ring.scheme(row, table.batch) if row.is_async else shared_fakes.Scheme()
        stream = ring.batches(seed, round(table.batch * row.d))
        game = Game(ring.game(row, seed), scheme, stream, ring.score)
    if row.is_async:
        game.scheme.roles(ALONE, 300.0)
    return game


def identity(table: Table, row: Row) -> str:
    """Equal where settings are."""
    text = json.dumps([asdict(table), asdict(row)], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def played(table: Table, row: Row, seed: int, data: str | None, keep: Path) -> dict[str, Any]:
    """The run as plain values. A run whose images are no longer finite ends there, and says so."""
    game = begun(table, row, seed, data, keep)
    seconds = timed(game.gan)
    began, images = time.process_time(), table.kimg * 1000
    points, losses, trained_s, diverged = [_point(game)], _Losses(images), 0.0, False
    try:
        for number in range(1, table.points + 1):
            before = time.process_time()
            while game.gan.clock.images < images * number / table.points:
                report = game.scheme.step(game.gan, game.batches)
                losses.add(report.images, report.read())
            game.scheme.quiesce()
            trained_s += time.process_time() - before
            points.append(_point(game))
    except ConfigError as error:
        diverged = "not finite" in str(error)
        if not diverged:
            raise
    records = getattr(game.scheme, "staleness_logs", {})
    lags = {side: {str(lag): n for lag, n in sorted(of.lags.items())} for side, of in records.items()}
    in_step_at = next((of.in_step_at for of in records.values() if of.in_step_at is not None), None)
    game.scheme.close()
    steps = game.gan.clock.step
    return {
        "points": points,
        "losses": losses.summary(),
        "steps": steps,
        "g_images": game.gan.g.images,
        "busy_s": {side: sum(spent) / max(1, steps) for side, spent in seconds.items()},
        "train_cpu_s": trained_s,
        "cpu_s": time.process_time() - began,
        "lags": lags,
        "in_step_at": in_step_at,
        "diverged": diverged,
    }


def _ordered(table: Table, row: Row, keep: Path) -> Row:
    """The row with a record from which the scheme learns what each update is to use."""
    folder = keep / table.name / f"{identity(table, row)}-order"
    folder.mkdir(parents=True, exist_ok=True)
    steps = math.ceil(table.kimg * 1000 / (table.batch * row.d)) + 1
    used = {side: {"used": [[order[step] for step in range(steps)]]} for side, order in row.orders.items()}
    lines = ({"kind": "start", "step": 0}, {"kind": "delays", **used})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return replace(row, scheme={**(row.scheme or {}), "order": str(folder)}, orders={})


def _of_recipe(table: Table, row: Row, seed: int, data: str | None, keep: Path) -> Game:
    config = read_recipe(table.recipe, table.row_words(row, data, seed))
    torch.set_num_threads(1)
    found, score = _shared(table, data, keep)
    device = torch.device("cpu")
    loader = Loader(found.train, config.train.batch, config.seed, device)
    return Game(build.gan(config, found, device), build.scheme(config), loader, score)


@cache
def _shared(
    table: Table, data: str | None, keep: Path
) -> tuple[build.Data, Callable[[Player, Prior], dict[str, float]]]:
    """The data, and one judge for all rows: scores of two judges cannot be compared."""
    config: RunConfig = read_recipe(table.recipe, table.row_words(Row("sync"), data, 0))
    found = build.open_data(config)
    device = torch.device("cpu")
    context = extractor_context(found, keep / table.name, print, device)
    scored = scorer(config, found, build.gan(config, found, device).prior, context)
    assert scored is not None
    return found, lambda player, prior: scored(player, prior).metrics


def _point(game: Game) -> dict[str, float]:
    assert isinstance(game.gan.g, Player)
    found = game.score(game.gan.g, game.gan.prior)
    if not all(math.isfinite(value) for value in found.values()):
        raise ConfigError("score: not finite")
    return {"images": game.gan.clock.images, "step": game.gan.clock.step, **found}


def timed(gan: GAN) -> dict[str, list[float]]:
    """Seconds of the processor by player, of all its updates from now on: of the thread that makes them, so that it
    does not count what the other player's does at the same time. Making images is G's.
    """
    seconds: dict[str, list[float]] = {"g": [], "d": []}

    def counted(call: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            before = time.thread_time()
            found = call(*given, **named)
            into.append(time.thread_time() - before)
            return found

        return timed

    for name, player in (("g", gan.g), ("d", gan.d)):
        for method in ("generate_fakes", "update"):
            setattr(player, method, counted(getattr(player, method), seconds[name]))
    return seconds


class _Losses:
    """Mean and spread of each player's loss in equal parts of the run."""

    def __init__(self, images: float) -> None:
        self.images = images
        self._found: dict[str, dict[int, list[float]]] = {side: defaultdict(list) for side in _LOSSES}

    def add(self, images: int, numbers: dict[str, float]) -> None:
        part = min(NUM_BINS - 1, int(images / self.images * NUM_BINS))
        for side, name in _LOSSES.items():
            if math.isfinite(value := numbers.get(name, math.nan)):
                self._found[side][part].append(value)

    def summary(self) -> dict[str, list[dict[str, float]]]:
        width = self.images / NUM_BINS
        return {
            side: [_bin((part + 0.5) * width, found[part]) for part in sorted(found)]
            for side, found in self._found.items()
        }


def _bin(images: float, values: list[float]) -> dict[str, float]:
    return {"images": images, "mean": statistics.fmean(values), "spread": statistics.pstdev(values)}
