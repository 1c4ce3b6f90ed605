"""Outputs of generators and discriminators, and of the networks of a turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class DiscriminatorOutput:
    """Output of a discriminator.

    Logits may have trailing axes (patches); the game averages them per sample. classes_BK: class
    logits of an auxiliary classifier (`penalties/auxiliary`).
    """

    logits_B: Tensor
    features: Tensor | None = None
    classes_BK: Tensor | None = None

    @classmethod
    def of(
        cls, output: Tensor | tuple[Tensor, *tuple[Tensor | None, ...]] | DiscriminatorOutput
    ) -> DiscriminatorOutput:
        """Convert what a network returns.

        output: a `DiscriminatorOutput`, logits, (logits, features) or (logits, features, classes).
        """
        if isinstance(output, DiscriminatorOutput):
            return output
        return cls(*output) if isinstance(output, tuple) else cls(output)

    def split(self, sizes: list[int]) -> tuple[DiscriminatorOutput, ...]:
        """Split the samples into pieces of these sizes."""
        logits = self.logits_B.split(sizes)
        values = (self.features, self.classes_BK)
        more = [[None] * len(sizes) if v is None else v.split(sizes) for v in values]
        return tuple(DiscriminatorOutput(*each) for each in zip(logits, *more, strict=True))


def mean_per_sample(values: Tensor) -> Tensor:
    """Return one value per sample, (B,): logits of patches are averaged."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


@dataclass(frozen=True)
class GeneratorOutput:
    """Output of a generator: images, which D receives, and extra tensors for objectives."""

    images: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Tensor | GeneratorOutput) -> GeneratorOutput:
        """Convert what a network returns: a `GeneratorOutput`, or images."""
        return output if isinstance(output, GeneratorOutput) else cls(output)


def identity(tensor: Tensor) -> Tensor:
    """Return the tensor: gather and sum of a process without other ranks."""
    return tensor


@dataclass(frozen=True)
class Outputs:
    """Outputs of the networks of a turn for one micro-batch.

    images, extra: of the generator (`GeneratorOutput`). whole(x_B): the rows of all ranks
    (`PenaltyContext`), for an objective that compares samples.
    """

    fake: DiscriminatorOutput
    real: DiscriminatorOutput | None = None
    images: Any = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    whole: Callable[[Tensor], Tensor] = identity
