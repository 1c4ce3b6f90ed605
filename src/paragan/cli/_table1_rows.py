"""The rows of the table: what each changes of the baseline, and what the poster says of it.

Source: "Distributed Training of Generative Adversarial Networks" (poster), table 1: pix2pix on the facades at batch 1,
on one GPU under Colossal-AI, means over 100 epochs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from paragan.core.errors import ConfigError

_LOOP = "optimizer.arguments={betas: [0.5, 0.999], fused: false, foreach: false}"
_FUSED = "optimizer.arguments={betas: [0.5, 0.999], fused: true}"
PLAIN = ("precision=fp32", "channels_last=false", _LOOP)  # torch's Adam as it comes on a CPU: a loop over tensors
_OWN = ("precision=auto", "channels_last=null", "optimizer.arguments={betas: [0.5, 0.999]}")
_LOW = ("precision=bf16", "channels_last=true")


@dataclass(frozen=True)
class Poster:
    """seconds: of an epoch, on their GPU."""

    seconds: float
    d_loss: float
    g_loss: float

    @property
    def ratio(self) -> float:
        return self.seconds / BASELINE.seconds


BASELINE = Poster(40.38, 0.283, 25.547)


@dataclass(frozen=True)
class Row:
    """words: settings of either player, over `PLAIN`. parts: batches per update. joined: on the ranks asked for."""

    name: str
    words: tuple[str, ...] = ()
    parts: int = 1
    joined: bool = False
    poster: Poster | None = None


@dataclass(frozen=True)
class Group:
    """Rows that are measured in turn, the first of them the base of their ratios. batch: images of a rank."""

    batch: int
    rows: tuple[Row, ...]

    @property
    def unit(self) -> int:
        """Images on which every row makes whole updates, on one rank."""
        return self.batch * max(row.parts for row in self.rows)


@dataclass(frozen=True)
class Table:
    """words: of the recipe, for all rows. images: of an epoch. cost: of one image, in images of pix2pix, roughly."""

    recipe: str
    images: int
    words: tuple[str, ...]
    groups: tuple[Group, ...]
    cost: float = 1.0


@dataclass
class Measured:
    """What one row gave. seconds: CPU time of each round, all its processes together. ratios: to the base, by round.

    base: others are compared with this one. images: of an epoch, as far as all rows make whole updates of them.
    pieces: of each round, the images and the sums of the losses. updates: of D and G, per epoch. error: why there is
    nothing else.
    """

    row: Row
    batch: int
    base: bool = False
    images: int = 0
    seconds: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    pieces: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    updates: tuple[float, float] = (0.0, 0.0)
    d_loss: float | None = None
    g_loss: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        told = None if self.row.poster is None else {**asdict(self.row.poster), "ratio": self.row.poster.ratio}
        found = {key: value for key, value in asdict(self).items() if key not in ("row", "pieces")}
        return {"row": self.row.name, "words": list(self.row.words), "parts": self.row.parts, **found, "poster": told}


_BASE = Row("baseline", poster=BASELINE)
_AGAIN = Row("baseline again")
_SPREAD = Row("data parallel", ("strategy=ddp",), joined=True, poster=Poster(37.84, 0.288, 25.451))
_AMP = Row("AMP (bf16 autocast)", ("precision=bf16",), poster=Poster(35.04, 0.319, 24.991))
_PARTS = Row("accumulation 4", parts=4, poster=Poster(34.22, 0.459, 19.803))
_CLIP = Row("clipping (norm 2)", ("max_norm=2.0",), poster=Poster(34.91, 0.586, 20.010))
_ZERO = Poster(271.41, 0.400, 23.391)
_ZERO1 = Row("ZeRO (zero1)", ("strategy=zero1",), joined=True, poster=_ZERO)
_ZERO3 = Row("ZeRO (zero3)", ("strategy=zero3",), joined=True, poster=_ZERO)
_PURE = Row("pure bf16", ("precision=pure",))
_QUICK = Row("fused optimiser", (_FUSED,))

PIX2PIX = (  # three at a time: each holds some 1.4 GB
    Group(1, (_BASE, _AGAIN, _SPREAD)),
    Group(1, (_BASE, _AMP, _PARTS)),
    Group(1, (_BASE, _CLIP, _QUICK)),
    Group(1, (_BASE, _ZERO1, _ZERO3)),
    Group(1, (_BASE, _PURE, Row("channels last + bf16", _LOW))),
    Group(
        1,
        (
            _BASE,
            Row("all together: fused, channels last, bf16", (*_LOW, _FUSED)),
            Row("as the recipe has it: fused, rest by the hardware", _OWN),
        ),
    ),
    *(Group(batch, tuple(Row(r.name, r.words, joined=r.joined) for r in (_BASE, _ZERO1, _ZERO3))) for batch in (4, 8)),
)
VANILLA = (
    Group(
        64,
        (
            *(Row(r.name, r.words, r.parts, r.joined) for r in (_BASE, _AGAIN, _SPREAD, _AMP, _PARTS, _CLIP)),
            *(Row(r.name, r.words, r.parts, r.joined) for r in (_ZERO1, _ZERO3, _QUICK, _PURE)),
            Row("all together: fused, bf16", ("precision=bf16", _FUSED)),
            Row("as the recipe has it: fused, fp32", ("precision=fp32", *_OWN[1:])),
        ),
    ),
)


@dataclass(frozen=True)
class Asked:
    """The words of the command. data, mnist: None leaves that table out."""

    images: int = 400
    epochs: int = 1
    data: str | None = None
    mnist: str | None = None
    rounds: int = 20
    ranks: int = 1
    mnist_images: int = 12800

    @property
    def num_validation(self) -> int:
        return min(100, max(20, self.images // 4))

    def tables(self) -> list[Table]:
        """`ConfigError` where there is no data, or so little that a row would not update once."""
        found = []
        if self.data is not None:
            # no average: neither the poster nor the authors of pix2pix had one, and it would be scored in place of G
            words = (f"data.path={self.data}", "g.ema=null", f"score.num_images={self.num_validation}")
            found.append(Table("pix2pix-facades", self.images, words, PIX2PIX, 1.0))
        if self.mnist is not None:
            of_digits = (f"data.path={self.mnist}", "score.num_images=2000")
            found.append(Table("vanilla-mnist", self.mnist_images, of_digits, VANILLA, 0.0005))
        if not found:
            raise ConfigError("bench table1: found no data, expected --data FACADES, --mnist MNIST, or both")
        for table in found:
            least = max(group.unit for group in table.groups) * self.ranks
            if table.images < least:
                told = f"found {table.images} images of {table.recipe}, expected at least {least}"
                raise ConfigError(f"--images: {told}: one update of each row on {self.ranks} ranks")
        return found
