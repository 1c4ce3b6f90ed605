"""One run of `benchmarks.preset_quality`: its settings, and what each of its ranks does."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import paragan as pg
from benchmarks import asynchronous_ring as ring
from paragan.checkpoint.reader import read_checkpoint
from paragan.core.types import Rows
from paragan.distributed.launch.rank_env import rank_environment
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import generate_images
from paragan.layers.init import initialise

Scored = tuple[pg.Run, Sequence[Mapping[str, Any]]]

RANKS = 4
DDP = {"g.strategy": {"name": "ddp"}, "d.strategy": {"name": "ddp"}}
SYNC = {"scheme": {"name": "shared_fakes"}}
ROWS: Mapping[str, Mapping[str, Any]] = {  # in addition to the preset
    "sync": {**SYNC, **DDP},
    "preset": {},
    "preset, H = 1": DDP,
    "preset, batch norm over ranks": {"g.norm_ranks": 2},
    "preset, exact": {"scheme.state_dtype": "exact", "scheme.fakes_dtype": "exact"},
    "sync, H = 2": SYNC,
    "sync, one process": {**SYNC, "g.strategy": {"name": "none"}, "d.strategy": {"name": "none"}},
}


@dataclass(frozen=True)
class Table:
    """steps: of `batch` images, scored at `points` equal distances. rates: in place of the preset's 1e-4 and 4e-4."""

    name: str
    metric: str
    batch: int
    steps: int
    points: int
    rows: tuple[str, ...]
    rates: Mapping[str, float]

    def settings(self, row: str, seed: int) -> dict[str, Any]:
        """Settings of one run."""
        length = {"seed": seed, "train.batch": self.batch, "train.kimg": self.steps * self.batch / 1000}
        quiet = {"train.threads": 1, "train.timeout_s": 120.0, "every.sample_kimg": 0, "writers": ["jsonl"]}
        return {"preset": "paragan", **length, **quiet, **self.rates, **ROWS[row]}

    @property
    def period_kimg(self) -> float:
        """Thousands of images between two scores."""
        return self.steps * self.batch / self.points / 1000


RATES = {"g.optimizer.lr": 1e-3, "d.optimizer.lr": 1e-3}  # of the recipe

TABLES = {
    table.name: table
    for table in (
        Table("digits", "fd[judge]", 32, 500, 5, tuple(ROWS)[:-1], RATES),
        Table("digits-long", "fd[judge]", 32, 1500, 5, ("sync, one process", "preset", "preset, H = 1"), RATES),
        Table("digits-preset-rates", "fd[judge]", 32, 6000, 6, ("sync, one process", "preset"), {}),
        Table("ring", "sliced distance", 64, 4000, 4, ("sync", "preset"), {}),
    )
}


class Generator(ring.Points):
    """The ring's generator, with the name that `Trainer` reads."""

    def __init__(self) -> None:
        super().__init__(ring.LATENT, 2)

    def forward(self, latent: Tensor) -> Tensor:
        return super().forward(latent)


class Discriminator(ring.Points):
    """The ring's discriminator, with the name that `Trainer` reads."""

    def __init__(self) -> None:
        super().__init__(2, 1)

    def forward(self, point: Tensor) -> Tensor:
        return super().forward(point)


def train_digits(table: Table, row: str, seed: int, keep: Path, out: Path) -> Scored:
    """Train on this rank; return the run and its scores."""
    with suppress(FileExistsError):  # of another rank
        shutil.copytree(keep / "judge", out / "judge")
    more = {"g.ema.half_life_kimg": 1, "every.score_kimg": table.period_kimg, "every.save_kimg": 0}
    run = pg.train("digits", {**table.settings(row, seed), **more}, out=out)
    return run, run.records("score")


def train_ring(table: Table, row: str, seed: int, keep: Path, out: Path) -> Scored:
    """Train on this rank; return the run and its scores, which rank 0 computes from the checkpoints."""
    nets = {"g": Generator(), "d": Discriminator()}
    for side, net in nets.items():
        initialise(net, seed, side)
    count = table.steps * table.batch
    data = {"point": ring.points(seed, "real", Rows(step=0, first=0, count=count, total=count))}
    more = {
        "penalties": [{"name": "r1", "weight": 0.1}],
        "g.ema.half_life_kimg": 5.0,
        "every.save_kimg": table.period_kimg,
        "every.keep": table.points,
    }
    settings = {**table.settings(row, seed), **more}
    run = pg.Trainer(*nets.values(), data, loss="nonsaturating", settings=settings, out=out).run()
    paths = sorted((out / "checkpoints").glob("step-*")) if int(os.environ["RANK"]) == 0 else []
    return run, [_ring_score(path, seed) for path in paths]


def _ring_score(path: Path, seed: int) -> dict[str, float]:
    checkpoint = read_checkpoint(path, only="g")
    net = Generator()
    net.load_state_dict(dict(checkpoint.groups["g"].under("ema/")))
    rows = Rows(step=0, first=0, count=2000, total=2000)
    z_BZ, _ = Prior(seed=seed, latent=ring.LATENT).draw("score", rows)
    made = generate_images(CalledNetwork(module=net), z_BZ, None)
    return {"step": checkpoint.values["clock"]["step"], **ring.measured(made, ring.points(seed, "score", rows))}


def num_ranks(row: str) -> int:
    """Processes of a run."""
    return 1 if row == "sync, one process" else RANKS


def run_rank(number: int, table: Table, row: str, seed: int, keep: Path, folder: Path) -> None:
    """Be rank `number` of a run: train, and let rank 0 write `run.json`."""
    log = os.open(folder / f"rank-{number}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if num_ranks(row) > 1:
        os.environ.update(rank_environment(number, num_ranks(row), str(folder / "store")))
    began = time.monotonic()
    train = train_ring if table.name == "ring" else train_digits
    run, scores = train(table, row, seed, keep, folder / "run")
    if number == 0:
        by_step = {score["step"]: {name: score[name] for name in score if _is_number(score[name])} for score in scores}
        lags = {side: _lags(run, side, kind) for side, kind in (("g", "lag"), ("d", "age"))}
        found = {
            "points": list(by_step.values()),
            "lags": lags,
            "wall_s": round(time.monotonic() - began, 1),
            "config": (folder / "run/config.yaml").read_text(),
        }
        (folder / "run.json").write_text(json.dumps(found))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _lags(run: pg.Run, side: str, kind: str) -> Counter[str]:
    """Count updates of G by the age of their opponent in steps, or images of D by their age."""
    counts: Counter[str] = Counter()
    for line in run.records("delays"):
        counts.update(line[side][kind])
    return counts
