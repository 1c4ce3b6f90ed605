"""The values that travel between floors.

Shape suffixes: B samples of this part, C channels, H height, W width, Z latent. Every tensor whose first axis is B
holds consecutive rows of one global batch; `Rows` says which.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor


class Side(enum.Enum):
    """Which of the two players."""

    G = "g"
    D = "d"


class Can(enum.Enum):
    """What a strategy is able to run; `build` refuses a loss or penalty that needs more."""

    DOUBLE_BACKWARD = "double backward"
    COUPLED = "terms that mix samples"
    PARTS = "micro-batches"
    WHOLE_WEIGHTS = "terms that read whole weights"


@dataclass(frozen=True)
class Rows:
    """Rows first, first + stride, … (`count` of them) of global batch number `step`; `total` rows over all ranks."""

    step: int
    first: int
    count: int
    total: int
    stride: int = 1

    def shares(self, n: int) -> tuple[Rows, ...]:
        """Cut for `n` ranks: consecutive pieces whose sizes differ by at most one row."""
        cuts = [self.first + self.count * i // n for i in range(n + 1)]
        return tuple(Rows(self.step, a, b - a, self.total) for a, b in pairwise(cuts))

    def parts(self, n: int) -> tuple[Rows, ...]:
        """Dealt to `n` micro-batches by row number modulo n.

        However many ranks hold the batch, micro-batch k has the same rows over all of them: what mixes samples sees
        the same company.
        """
        return tuple(self._part(k, n) for k in range(n))

    def _part(self, k: int, n: int) -> Rows:
        skipped = (k - self.first // self.stride) % n
        count = max(0, -(-(self.count - skipped) // n))
        return Rows(self.step, self.first + skipped * self.stride, count, self.total, self.stride * n)

    @property
    def window(self) -> slice:
        """Of a tensor that holds the whole global batch."""
        return slice(self.first, self.first + self.count * self.stride, self.stride)

    def within(self, whole: Rows) -> slice:
        """Of a tensor that holds the rows of `whole`."""
        start, step = (self.first - whole.first) // whole.stride, self.stride // whole.stride
        return slice(start, start + self.count * step, step)


@dataclass(frozen=True)
class Batch:
    """Real samples: images in [-1, 1], labels in [0, classes), an optional paired input."""

    rows: Rows
    x_BCHW: Tensor | None = None
    y_B: Tensor | None = None
    condition: Tensor | None = None

    def parts(self, n: int) -> tuple[Batch, ...]:
        return tuple(
            Batch(rows, *(_take(t, self.rows, rows) for t in (self.x_BCHW, self.y_B, self.condition)))
            for rows in self.rows.parts(n)
        )


@dataclass(frozen=True)
class DiscriminatorOutput:
    """What a discriminator returns. Logits may have trailing axes (patches); the game averages them per sample.

    classes_BK: of one that also tells classes (`penalties/auxiliary`), a logit for each.
    """

    logits_B: Tensor
    features: Tensor | None = None
    classes_BK: Tensor | None = None

    @classmethod
    def of(
        cls, output: Tensor | tuple[Tensor, *tuple[Tensor | None, ...]] | DiscriminatorOutput
    ) -> DiscriminatorOutput:
        """From what a network returns.

        A verdict, bare logits, or (logits, features) or (logits, features, classes) as the last block of a chain does.
        """
        if isinstance(output, DiscriminatorOutput):
            return output
        return cls(*output) if isinstance(output, tuple) else cls(output)

    def split(self, sizes: list[int]) -> tuple[DiscriminatorOutput, ...]:
        logits = self.logits_B.split(sizes)
        more = [[None] * len(sizes) if v is None else v.split(sizes) for v in (self.features, self.classes_BK)]
        return tuple(DiscriminatorOutput(*each) for each in zip(logits, *more, strict=True))


@dataclass(frozen=True)
class GeneratorOutput:
    """What a generator may return instead of bare images: the images that D sees, and what only objectives need."""

    images: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Tensor | GeneratorOutput) -> GeneratorOutput:
        return output if isinstance(output, GeneratorOutput) else cls(output)


@dataclass(frozen=True)
class TurnInputs:
    """What one turn is fed: draws of the global batch, cut to these rows.

    `fakes` are images that already exist, one tensor per part in row order: filled from the opponent in D's turn, or
    made once and shared between both turns (`schemes/shared_fakes`), then with their graph. `version` is the
    generator's that made them."""

    rows: Rows
    seed: int
    z_BZ: Tensor | None = None
    y_B: Tensor | None = None
    condition: Tensor | None = None
    real: Batch | None = None
    fakes: tuple[Tensor, ...] | None = None
    version: int | None = None

    @property
    def fake_inputs(self) -> tuple[Tensor | None, ...]:
        """What the generator is called with."""
        return (self.z_BZ, self.y_B) if self.condition is None else (self.z_BZ, self.y_B, self.condition)

    @property
    def real_inputs(self) -> tuple[Tensor | None, ...]:
        """The arguments of the discriminator's call on the real samples."""
        assert self.real is not None
        inputs = (self.real.x_BCHW, self.real.y_B)
        return inputs if self.condition is None else (*inputs, self.real.condition)

    def parts(self, n: int) -> tuple[TurnInputs, ...]:
        if n == 1 and (self.fakes is None or len(self.fakes) == 1):
            return (self,)
        reals = [None] * n if self.real is None else self.real.parts(n)

        def cut(tensor: Tensor | None) -> list[Tensor | None]:
            return [_take(tensor, self.rows, rows) for rows in self.rows.parts(n)]

        columns = (self.rows.parts(n), cut(self.z_BZ), cut(self.y_B), cut(self.condition), reals, self._fake_parts(n))
        return tuple(
            replace(self, rows=rows, z_BZ=z, y_B=y, condition=condition, real=real, fakes=fakes)
            for rows, z, y, condition, real, fakes in zip(*columns, strict=True)
        )

    def _fake_parts(self, n: int) -> list[tuple[Tensor, ...] | None]:
        if self.fakes is None:
            return [None] * n
        if len(self.fakes) == n:
            return [(part,) for part in self.fakes]
        whole = self.in_order(self.fakes)  # whoever made them counts parts differently
        return [(whole[rows.within(self.rows)],) for rows in self.rows.parts(n)]

    def in_order(self, fakes: tuple[Tensor, ...]) -> Tensor:
        """The images of all parts, row by row."""
        if len(fakes) == 1:
            return fakes[0]
        made = self.rows.parts(len(fakes))
        places = torch.cat([torch.arange(self.rows.count)[rows.within(self.rows)] for rows in made])
        return torch.cat(fakes)[places.argsort().to(fakes[0].device)]


def _as_it_is(x_B: Tensor) -> Tensor:
    return x_B


@dataclass(frozen=True)
class Outputs:
    """What the networks of a turn returned for one part. images, extra: the generator's, as `Made` tells them.

    whole(x_B): the rows of all ranks, as `core.seams.Part` has it, for an objective that compares samples.
    """

    fake: DiscriminatorOutput
    real: DiscriminatorOutput | None = None
    images: Any = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    whole: Callable[[Tensor], Tensor] = _as_it_is


@dataclass(frozen=True)
class LossTerms:
    """An objective, never a scalar mean: the strategy sums the rows and divides by `rows.total`.

    loss_B:   float per sample, by name; summed into the loss.
    observations_B: detached observations per sample, reduced once per update.
    """

    loss_B: Mapping[str, Tensor]
    observations_B: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Update:
    """What one update tells: 0-dim tensors on the player's device, held until somebody asks.

    Each is this rank's share: the sum over the ranks is the mean over the global batch.
    """

    scalars: Mapping[str, Tensor]
    rows: Rows
    version: int


@dataclass(frozen=True)
class Report:
    """What one step of the game tells. `scalars`, this rank's shares, stay on the device."""

    kind: ClassVar[str] = "step"  # as of an `Event`
    step: int
    images: int
    scalars: Mapping[str, Tensor]

    def read(self, total: Callable[[Tensor], Tensor] = lambda share: share) -> dict[str, float]:
        """The numbers. total: sums over the ranks, all of which have to ask. The only host sync."""
        if not self.scalars:
            return {}
        values = total(torch.stack([v.detach().float() for v in self.scalars.values()])).tolist()
        return dict(zip(self.scalars, values, strict=True))


def take_batches(batches: Iterator[Batch], n: int) -> Iterator[Batch]:
    """The next `n` batches."""
    for _ in range(n):
        yield next(batches)


def _take(tensor: Tensor | None, whole: Rows, part: Rows) -> Tensor | None:
    return None if tensor is None else tensor[part.within(whole)]
