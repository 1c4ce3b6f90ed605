"""Rows of the table: what each row changes in the baseline, and the poster's numbers for it.

Source: "Distributed Training of Generative Adversarial Networks" (poster), table 1: pix2pix on the facades at batch 1,
on one GPU under Colossal-AI, means over 100 epochs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paragan.core.errors import ConfigError

_LOOP = "optimizer.arguments={betas: [0.5, 0.999], fused: false, foreach: false}"
_FUSED = "optimizer.arguments={betas: [0.5, 0.999], fused: true}"
PLAIN = ("precision=fp32", "channels_last=false", _LOOP)  # torch's default Adam on a CPU: a loop over tensors
_RECIPE = ("precision=auto", "channels_last=null", "optimizer.arguments={betas: [0.5, 0.999]}")
_LOW = ("precision=bf16", "channels_last=true")


@dataclass(frozen=True)
class PosterNumbers:
    """The poster's result for one row. seconds: time of an epoch on their GPU."""

    seconds: float
    d_loss: float
    g_loss: float

    @property
    def ratio(self) -> float:
        """Epoch time divided by the baseline's."""
        return self.seconds / BASELINE.seconds


BASELINE = PosterNumbers(40.38, 0.283, 25.547)


@dataclass(frozen=True)
class Row:
    """One technique.

    settings: applied to both players, on top of `PLAIN`. micro_batches: batches per update. distributed: runs on
    `Table1Options.ranks` processes.
    """

    name: str
    settings: tuple[str, ...] = ()
    micro_batches: int = 1
    distributed: bool = False
    poster: PosterNumbers | None = None


@dataclass(frozen=True)
class Group:
    """Rows that are measured together; ratios are relative to the first row. batch: images per rank."""

    batch: int
    rows: tuple[Row, ...]

    @property
    def unit(self) -> int:
        """Smallest number of images on which every row makes whole updates, on one rank."""
        return self.batch * max(row.micro_batches for row in self.rows)

    @property
    def is_of_poster(self) -> bool:
        """Whether the poster has a number for a row that is compared with the first."""
        return any(row.poster is not None for row in self.rows[1:])


@dataclass(frozen=True)
class Table:
    """The groups of one recipe.

    settings: applied to all rows. images: per epoch. cost: approximate cost of one image relative to pix2pix.
    """

    recipe: str
    images: int
    settings: tuple[str, ...]
    groups: tuple[Group, ...]
    cost: float = 1.0


@dataclass
class RowResult:
    """Measurements of one row.

    is_base: the other rows of the group are compared with this one. images: of an epoch, as far as all rows make whole
    updates of them. seconds, wall: CPU time (all processes together) and wall time of each round. ratios: CPU time of
    each round divided by the base's. round_losses: images and summed losses of each round. updates: of D and G, per
    epoch. error: why the row has no numbers.
    """

    row: Row
    batch: int
    is_base: bool = False
    images: int = 0
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    round_losses: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    updates: tuple[float, float] = (0.0, 0.0)
    d_loss: float | None = None
    g_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        poster = None if self.row.poster is None else {**asdict(self.row.poster), "ratio": self.row.poster.ratio}
        fields = {key: value for key, value in asdict(self).items() if key not in ("row", "round_losses")}
        row = {
            "row": self.row.name,
            "settings": list(self.row.settings),
            "micro_batches": self.row.micro_batches,
        }
        return {**row, **fields, "poster": poster}


_BASE = Row("baseline", poster=BASELINE)
_REPEAT = Row("baseline again")
_DATA_PARALLEL = Row("data parallel", ("strategy=ddp",), distributed=True, poster=PosterNumbers(37.84, 0.288, 25.451))
_AMP = Row("AMP (bf16 autocast)", ("precision=bf16",), poster=PosterNumbers(35.04, 0.319, 24.991))
_ACCUMULATION = Row("accumulation 4", micro_batches=4, poster=PosterNumbers(34.22, 0.459, 19.803))
_CLIP = Row("clipping (norm 2)", ("max_norm=2.0",), poster=PosterNumbers(34.91, 0.586, 20.010))
_ZERO = PosterNumbers(271.41, 0.400, 23.391)
_ZERO1 = Row("ZeRO (zero1)", ("strategy=zero1",), distributed=True, poster=_ZERO)
_ZERO3 = Row("ZeRO (zero3)", ("strategy=zero3",), distributed=True, poster=_ZERO)
_PURE_BF16 = Row("pure bf16", ("precision=pure",))
_FUSED_ROW = Row("fused optimiser", (_FUSED,))


def _without_poster(row: Row) -> Row:
    """The same row where the poster has no number for it."""
    return replace(row, poster=None)


PIX2PIX = (  # three rows at a time: each needs about 1.4 GB
    Group(1, (_BASE, _REPEAT, _DATA_PARALLEL)),
    Group(1, (_BASE, _AMP, _ACCUMULATION)),
    Group(1, (_BASE, _CLIP, _FUSED_ROW)),
    Group(1, (_BASE, _ZERO1, _ZERO3)),
    Group(1, (_BASE, _PURE_BF16, Row("channels last + bf16", _LOW))),
    Group(
        1,
        (
            _BASE,
            Row("all together: fused, channels last, bf16", (*_LOW, _FUSED)),
            Row("as in the recipe: fused, rest by the hardware", _RECIPE),
        ),
    ),
    Group(4, tuple(map(_without_poster, (_BASE, _ZERO1, _ZERO3)))),
    Group(8, tuple(map(_without_poster, (_BASE, _ZERO1, _ZERO3)))),
)
VANILLA = (
    Group(
        64,
        (
            *map(_without_poster, (_BASE, _REPEAT, _DATA_PARALLEL, _AMP, _ACCUMULATION, _CLIP)),
            *map(_without_poster, (_ZERO1, _ZERO3, _FUSED_ROW, _PURE_BF16)),
            Row("all together: fused, bf16", ("precision=bf16", _FUSED)),
            Row("as in the recipe: fused, fp32", ("precision=fp32", *_RECIPE[1:])),
        ),
    ),
)


@dataclass(frozen=True)
class Table1Options:
    """Options of the command.

    data, mnist: None leaves that table out. only_poster: leave out groups of pix2pix without a technique of the poster.
    """

    images: int = 400
    epochs: int = 1
    data: str | None = None
    mnist: str | None = None
    rounds: int = 20
    ranks: int = 1
    only_poster: bool = False
    mnist_images: int = 12800

    @property
    def num_validation(self) -> int:
        """Pairs on which pix2pix is validated."""
        return min(100, max(20, self.images // 4))

    def tables(self) -> list[Table]:
        """Tables to measure. Raises `ConfigError` without data, or with too few images for one update of each row."""
        tables = []
        if self.data is not None:
            # no EMA: neither the poster nor the authors of pix2pix used one, and it would be scored instead of G
            settings = (f"data.path={self.data}", "g.ema=null", f"evaluation.num_images={self.num_validation}")
            groups = tuple(group for group in PIX2PIX if group.is_of_poster or not self.only_poster)
            tables.append(Table("pix2pix-facades", self.images, settings, groups, 1.0))
        if self.mnist is not None:
            settings = (f"data.path={self.mnist}", "evaluation.num_images=2000")
            tables.append(Table("vanilla-mnist", self.mnist_images, settings, VANILLA, 0.0005))
        if not tables:
            raise ConfigError("bench table1 needs data; pass --data FACADES, --mnist MNIST, or both")
        for table in tables:
            minimum = max(group.unit for group in table.groups) * self.ranks
            if table.images < minimum:
                raise ConfigError(
                    f"--images: {table.images} images of {table.recipe} are too few for one update of each row on "
                    f"{self.ranks} ranks; pass at least {minimum}"
                )
        return tables
