"""Values that are passed between packages.

Shape suffixes: B samples of this part, C channels, H height, W width, Z latent. Every tensor whose
first axis is B contains consecutive rows of one global batch; `Rows` says which.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

from paragan.core.outputs import identity

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class Side(enum.Enum):
    """Name of a player: of the two that every game has, or of an extra one, `Side("fake_score")`.

    Iterating over `Side` yields `G` and `D` only.
    """

    G = "g"
    D = "d"

    __hash__ = object.__hash__  # one object for each name; that of `Enum` is written in Python

    @property
    def is_extra(self) -> bool:
        """Whether it is neither G nor D."""
        return self not in (Side.G, Side.D)

    @classmethod
    def _missing_(cls, value: object) -> Side | None:
        """Return the side of an extra player, one object for each name; None for an invalid name."""
        if not isinstance(value, str) or _NAME.fullmatch(value) is None:
            return None
        side = object.__new__(cls)
        side._name_ = value
        side._value_ = value
        return cls._value2member_map_.setdefault(value, side)  # type: ignore[return-value]


def player_label(name: str) -> str:
    """Return a player as texts show it: `G` and `D`, extra players by their names."""
    return name.upper() if len(name) == 1 else name


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Row numbers first, first + stride, … (`count` of them) of global batch number `step`.

    total: rows of the global batch, over all ranks.
    """

    step: int
    first: int
    count: int
    total: int
    stride: int = 1

    def shares(self, n: int) -> tuple[Rows, ...]:
        """Split for `n` ranks into consecutive pieces whose sizes differ by at most one row."""
        cuts = [self.first + self.count * i // n for i in range(n + 1)]
        return tuple(Rows(step=self.step, first=a, count=b - a, total=self.total) for a, b in pairwise(cuts))

    def parts(self, n: int) -> tuple[Rows, ...]:
        """Split into `n` micro-batches by row number modulo n.

        Micro-batch k has equal rows on any number of ranks, for equal results of batch norm.
        """
        return tuple(self._part(k, n) for k in range(n))

    def _part(self, k: int, n: int) -> Rows:
        # by the number in the global batch, not in these rows: other ranks begin at other remainders
        skipped = (k - self.first // self.stride) % n
        count = max(0, -(-(self.count - skipped) // n))
        first = self.first + skipped * self.stride
        return Rows(step=self.step, first=first, count=count, total=self.total, stride=self.stride * n)

    @property
    def window(self) -> slice:
        """The slice of these rows in a tensor of the whole global batch."""
        return slice(self.first, self.first + self.count * self.stride, self.stride)

    def within(self, whole: Rows) -> slice:
        """Return the slice of these rows in a tensor that holds the rows of `whole`."""
        start = (self.first - whole.first) // whole.stride
        step = self.stride // whole.stride
        return slice(start, start + self.count * step, step)


class _NamedTensors:
    """Short names for tensors of images, and cuts of all tensors."""

    rows: Rows
    tensors: Mapping[str, Tensor]

    @property
    def label(self) -> Tensor | None:
        """The tensor `label`, or None."""
        return self.tensors.get("label")

    @property
    def condition(self) -> Tensor | None:
        """The tensor `condition`, or None."""
        return self.tensors.get("condition")

    def _cut(self, part: Rows) -> dict[str, Tensor]:
        rows = part.within(self.rows)
        return {name: tensor[rows] for name, tensor in self.tensors.items()}


IMAGE_ARGUMENTS = ("image", "label", "condition")


@dataclass(frozen=True)
class Batch(_NamedTensors):
    """Real samples: tensors by name, a row per sample; empty if only row numbers are needed.

    A source of images has `image`, uint8 mapped to [-1, 1], `label` in [0, classes) and, for pairs,
    `condition`. Other sources declare other names.
    """

    rows: Rows
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def image(self) -> Tensor:
        """The tensor `image`."""
        return self.tensors["image"]

    def parts(self, n: int) -> tuple[Batch, ...]:
        """Split into `n` micro-batches."""
        parts = self.rows.parts(n)
        return tuple(Batch(rows, self._cut(rows)) for rows in parts)


@dataclass(frozen=True, kw_only=True)
class TurnInputs(_NamedTensors):
    """Inputs of one turn: draws for the global batch, cut to these rows.

    tensors: `latent` and the other arguments of G, by name. real: samples of the data, in a turn that needs them.
    discriminator_arguments: names, in order; the first is what G generates (`sample_name`). An argument without a
    tensor is None. generator_arguments: names; None: `latent`, and D's arguments after the sample.
    fakes: generated images, one tensor per micro-batch in row order: filled from the opponent in D's turn, or shared
    between both turns (`schemes/shared_fakes`), then with their graph.
    """

    rows: Rows
    seed: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    real: Batch | None = None
    fakes: tuple[Tensor, ...] | None = None
    discriminator_arguments: tuple[str, ...] = IMAGE_ARGUMENTS
    generator_arguments: tuple[str, ...] | None = None

    @property
    def latent(self) -> Tensor | None:
        """The tensor `latent`, or None."""
        return self.tensors.get("latent")

    @property
    def sample_name(self) -> str:
        """Name of what G generates: `image`, or another tensor of a batch."""
        return self.discriminator_arguments[0]

    @property
    def real_sample(self) -> Tensor:
        """The real samples for D."""
        assert self.real is not None
        return self.real.tensors[self.sample_name]

    @property
    def fake_inputs(self) -> tuple[Tensor | None, ...]:
        """Arguments of the generator."""
        if self.generator_arguments is None:
            return (self.latent, *self.fake_conditions)
        return tuple(map(self.tensors.get, self.generator_arguments))

    @property
    def fake_conditions(self) -> tuple[Tensor | None, ...]:
        """Arguments of the discriminator's call on fakes, after the fakes."""
        return tuple(map(self.tensors.get, self.discriminator_arguments[1:]))

    @property
    def real_inputs(self) -> tuple[Tensor | None, ...]:
        """Arguments of the discriminator's call on the real samples."""
        assert self.real is not None
        return tuple(map(self.real.tensors.get, self.discriminator_arguments))

    def parts(self, n: int) -> tuple[TurnInputs, ...]:
        """Split into `n` micro-batches."""
        if n == 1 and (self.fakes is None or len(self.fakes) == 1):
            return (self,)
        parts = self.rows.parts(n)
        reals = [None] * n if self.real is None else self.real.parts(n)
        return tuple(
            replace(self, rows=rows, tensors=self._cut(rows), real=real, fakes=fakes)
            for rows, real, fakes in zip(parts, reals, self._fake_parts(n), strict=True)
        )

    def _fake_parts(self, n: int) -> list[tuple[Tensor, ...] | None]:
        if self.fakes is None:
            return [None] * n
        if len(self.fakes) == n:
            return [(part,) for part in self.fakes]
        whole = self.in_order(self.fakes)  # generated with other micro-batches
        return [(whole[rows.within(self.rows)],) for rows in self.rows.parts(n)]

    def in_order(self, fakes: tuple[Tensor, ...]) -> Tensor:
        """Return the images of all micro-batches in row order."""
        if len(fakes) == 1:
            return fakes[0]
        parts = self.rows.parts(len(fakes))
        places = torch.cat([torch.arange(self.rows.count)[rows.within(self.rows)] for rows in parts])
        return torch.cat(fakes)[places.argsort().to(fakes[0].device)]


@dataclass(frozen=True)
class LossTerms:
    """Values of an objective per sample; the strategy sums the rows and divides by `rows.total`.

    loss_B: float per sample, by name; summed into the loss. observations_B: detached observations per sample, reduced
    once per update. weights: factors that losses contain and a balancer preserves.
    """

    loss_B: Mapping[str, Tensor]
    observations_B: Mapping[str, Tensor] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Update:
    """Result of one update.

    scalars: 0-dim tensors on the player's device, read at log points only. Each is this rank's
    share: the sum over the ranks is the mean over the global batch.
    """

    scalars: Mapping[str, Tensor]
    rows: Rows
    version: int


@dataclass(frozen=True)
class Report:
    """Result of one step of the game.

    scalars: this rank's shares, on the device (`Update`). weights: of the terms that change.
    """

    step: int
    images: int
    scalars: Mapping[str, Tensor]
    weights: Mapping[str, float] = field(default_factory=dict)

    def read(self, total: Callable[[Tensor], Tensor] = identity) -> dict[str, float]:
        """Return the numbers: the only host sync. total: sums over the ranks. Collective."""
        if not self.scalars:
            return {}
        values = total(torch.stack([v.detach().float() for v in self.scalars.values()])).tolist()
        return dict(zip(self.scalars, values, strict=True))


def present_tensors(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Return the tensors by name, without those that are None."""
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


@dataclass
class Clock:
    """Finished steps of a game, and real images of D's batches, over all ranks.

    Those of a turn that is not due (update_probability, d_start_kimg) count; a step that has no turn of D has none.
    """

    step: int = 0
    images: int = 0

    def advance(self, images: int) -> None:
        """Count one step, whose turns of D have this many real images."""
        self.step += 1
        self.images += images


def is_due(kimg: float, before: int, now: int) -> bool:
    """Return whether a multiple of this many thousand images is in (before, now], also after a resume; 0: never."""
    period = round(kimg * 1000, 9)  # 2.007 * 1000 is a little more than 2007
    return period > 0 and int(now / period) > int(before / period)
