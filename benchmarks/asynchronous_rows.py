"""What `asynchronous_quality` compares: tables of one data set each, and their rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

# Of AdaBelief for G. Without a mean of the gradient (beta1 = 0) its spread around that mean is 0 and steps explode.
BELIEF = {"name": "adabelief", "betas": (0.5, 0.999), "eps": 1e-12}


@dataclass(frozen=True)
class Steady:
    """An endless order of versions: update t uses what there is after `first` + t, at least `least`."""

    first: int
    least: int = 0

    def __getitem__(self, update: int) -> int:
        return max(self.least, update + self.first)


@dataclass(frozen=True)
class Row:
    """One way to train. scheme: options of `asynchronous`; None: `shared_fakes`, which is `asynchronous` at S = 0.

    g, d: images of a turn of each, as multiples of the table's batch. g_optimizer, d_optimizer: in place of the
    table's own.
    orders: by player, of a run whose delays are given rather than found. words: more of the config.
    """

    name: str
    scheme: Mapping[str, Any] | None = None
    g: float = 1.0
    d: float = 1.0
    g_optimizer: Mapping[str, Any] | None = None
    orders: Mapping[str, Steady] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    d_optimizer: Mapping[str, Any] | None = None

    @property
    def is_async(self) -> bool:
        return self.scheme is not None


@dataclass(frozen=True)
class Table:
    """recipe: of the library ("": the ring). batch: of D's turn where a row's `d` is 1. kimg: length, in real
    images. points: how often a run is scored, evenly spread. metric: what is reported first, lower is better.
    """

    name: str
    recipe: str
    batch: int
    kimg: float
    metric: str
    words: tuple[str, ...] = ()
    points: int = 6
    note: str = ""

    def row_words(self, row: Row, data: str | None, seed: int) -> list[str]:
        """The config of one run, as words over the recipe."""
        words = [*self.words, *row.words, f"seed={seed}", f"train.batch={round(self.batch * row.d)}"]
        if data is not None:
            words.append(f"data.path={data}")
        if row.scheme is None:
            words.append("scheme.name=shared_fakes")
        else:
            chosen = dict(row.scheme) | ({"g_batch": round(self.batch * row.g)} if row.g != row.d else {})
            words += ["scheme.name=asynchronous", *(f"scheme.{key}={value}" for key, value in chosen.items())]
        for side, optimizer in (("g", row.g_optimizer), ("d", row.d_optimizer)):
            if optimizer is not None:
                words += _optimizer_words(side, optimizer)
        return words

    def label(self, row: Row) -> str:
        """As the poster names them: G's and D's images of a turn."""
        return f"{row.name} G-{round(self.batch * row.g)} D-{round(self.batch * row.d)}"


def _optimizer_words(side: str, optimizer: Mapping[str, Any]) -> list[str]:
    beta1, beta2 = optimizer["betas"]
    eps = f", eps: {optimizer['eps']}" if "eps" in optimizer else ""
    words = [f"{side}.optimizer.name={optimizer['name']}"]
    words.append(f"{side}.optimizer.arguments={{betas: [{beta1}, {beta2}]{eps}}}")
    return words + ([f"{side}.optimizer.lr={optimizer['lr']}"] if "lr" in optimizer else [])


_ASYNC = {"staleness": 1}  # the default
ROWS: Sequence[Row] = (
    Row("sync"),
    Row("async", _ASYNC),
    Row("async half", _ASYNC, g=1.0, d=0.5),
    Row("sync double", g=2.0, d=2.0),
    Row("sync asymmetric", g_optimizer=BELIEF),
    Row("async asymmetric", _ASYNC, g_optimizer=BELIEF),
)

_BF16 = {**_ASYNC, "state_dtype": "bf16", "fakes_dtype": "bf16"}  # of the preset `paragan`
_PRESET_G = {**BELIEF, "lr": 1e-4}
_PRESET_D = {"name": "Adam", "betas": BELIEF["betas"], "lr": 4e-4}
_ADAM = {"name": "Adam", "betas": BELIEF["betas"]}
PROBES: Sequence[Row] = (  # where a row is worse: what does it come from, and what helps?
    Row("async S=0", {"staleness": 0}),
    Row("async, only G late", _ASYNC, orders={"g": Steady(0), "d": Steady(1)}),
    Row("async bf16", _BF16),
    Row("sync preset's optimisers", g_optimizer=_PRESET_G, d_optimizer=_PRESET_D),
    Row("async bf16 preset's optimisers", _BF16, g_optimizer=_PRESET_G, d_optimizer=_PRESET_D),
    Row("async S=3", {"staleness": 3}),
    Row("async, both late by 1", _ASYNC, orders={"g": Steady(0), "d": Steady(0, least=1)}),
    Row("async, no reuse", {**_ASYNC, "reuse": "false"}),
    Row("async, cached 0.25", {**_ASYNC, "cached": 0.25}),
    Row("sync, G's Adam with AdaBelief's betas", g_optimizer=_ADAM),
    Row("async, G's Adam with AdaBelief's betas", _ASYNC, g_optimizer=_ADAM),
    Row("sync asymmetric, G's lr / 4", g_optimizer={**BELIEF, "lr": 2.5e-4}),
    Row("async asymmetric, G's lr / 4", _ASYNC, g_optimizer={**BELIEF, "lr": 2.5e-4}),
    Row("async asymmetric, eps 1e-8", _ASYNC, g_optimizer={**BELIEF, "eps": 1e-8}),
)

TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table("ring", "", 64, 128, "sliced distance", note="8 Gaussians on a circle; MLPs, points in place of images"),
        Table(
            "digits",
            "digits",
            32,
            16,
            "fd[judge]",
            ("g.ema.half_life_kimg=1",),
            note="DCGAN width 16, 16 px",
        ),
        Table(
            "mnist",
            "dcgan-mnist",
            32,
            16,
            "fd[mnist]",
            ("model.width=8", "g.ema.half_life_kimg=1", "evaluation.num_images=2000", "evaluation.features=mnist"),
            points=4,
            note="DCGAN width 8, 32 px",
        ),
        Table(  # not SNGAN: so narrow, and with one update of D for one of G, its D says 0 to everything
            "cifar10",
            "dcgan-mnist",
            128,
            32,
            "fd[cifar10]",
            (
                "data={name: cifar10, variant: lossless}",
                "model.width=8",
                "g.ema.half_life_kimg=2",
                "evaluation.features=cifar10",
                "evaluation.num_images=1000",
            ),
            points=4,
            note="DCGAN width 8, the 4,000 lossless images; the poster's batches",
        ),
        Table(
            "tiny-imagenet",
            "own",
            256,
            32,
            "fd[judge]",
            (
                "data.size=32",
                "model.conditional=true",
                "model.width=8",
                "augment=null",
                "g.ema.half_life_kimg=2",
            ),
            points=4,
            note="DCGAN width 8, 50 classes at 32 px; half the poster's batches",
        ),
    )
}


def chosen(only: str = "", probes: bool = False) -> list[Row]:
    """The rows that these words, parted by commas, name or, where they name none, are part of; all without any."""
    rows = [*ROWS, *(PROBES if probes else ())]
    names = {row.name for row in rows}
    wanted = [word.strip() for word in only.split(",") if word.strip()]
    return [row for row in rows if not wanted or any(_means(word, row.name, names) for word in wanted)]


def _means(word: str, name: str, names: Collection[str]) -> bool:
    return word == name if word in names else word in name


def shortened(table: Table, kimg: float, points: int) -> Table:
    """The same for a try."""
    return replace(table, kimg=kimg, points=points)
