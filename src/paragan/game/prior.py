"""Latents and labels, drawn by (seed, stream, step) and row of the global batch."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor, nn

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.settings_tree import shorten
from paragan.core.types import IMAGE_ARGUMENTS, Batch, Rows, TurnInputs, present_tensors


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Prior of latents, z ~ N(0, 1)^Z, and of labels, if there are classes.

    class_sizes: samples of each class, by which labels are drawn; empty: equally many.
    uses_labels: False for a generator that ignores its labels (`game.label_use`): no score and no
    sheet compares its classes. discriminator_arguments: names of D's arguments in a batch (`TurnInputs`).

    generator_arguments: None in a game of images, whose labels are drawn. Otherwise the names of G's arguments, as in a
    game of named tensors: only `latent` is drawn, labels are those of the batch, and `num_classes` is 0.
    """

    seed: int
    latent: int
    num_classes: int = 0
    class_sizes: tuple[int, ...] = ()
    device: torch.device = torch.device("cpu")
    dtype: torch.dtype = torch.float32
    uses_labels: bool = True
    discriminator_arguments: tuple[str, ...] = IMAGE_ARGUMENTS
    generator_arguments: tuple[str, ...] | None = None

    def draw(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Return z_BZ and y_B for these rows, on the device; equal for equal streams and rows."""
        z, y = self.draw_on_cpu(stream, rows)
        z_on_device = z.to(self.device, self.dtype, non_blocking=True)
        return z_on_device, None if y is None else y.to(self.device, non_blocking=True)

    def draw_on_cpu(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Return z_BZ and y_B for these rows, on the CPU."""
        z = rng.normal(self.seed, f"{stream}/z", rows, (self.latent,))
        if not self.num_classes:
            return z, None
        ends = self._class_ends
        numbers_B = rng.integers(self.seed, f"{stream}/y", rows, ends[-1]).contiguous()  # a micro-batch is strided
        return z, torch.searchsorted(torch.tensor(ends), numbers_B, right=True)

    @cached_property
    def _class_ends(self) -> list[int]:
        """Cumulated sizes of the classes over their greatest common divisor: 1, 2, 3, … of equal ones."""
        sizes = self.class_sizes or (1,) * self.num_classes
        divisor = math.gcd(*sizes)
        return [end // divisor for end in accumulate(sizes)]

    @property
    def protocol(self) -> dict[str, str]:
        """How labels are drawn, as an entry of a score's protocol; nothing without classes."""
        distribution = "uniform" if len(set(self.class_sizes)) < 2 else "as in the training data"
        return {"labels": distribution} if self.num_classes else {}

    @property
    def num_comparable_classes(self) -> int:
        """Number of classes whose images differ; 0 if the generator ignores its labels."""
        return self.num_classes if self.uses_labels else 0

    @property
    def reads_batches(self) -> bool:
        """Whether G's turn needs the tensors of its batch, not only its row numbers."""
        return self.generator_arguments is not None

    @property
    def sample_name(self) -> str:
        """Name of what G generates: `image`, or another tensor of a batch."""
        return self.discriminator_arguments[0]

    @property
    def judged(self) -> tuple[str, ...]:
        """Names of what D receives with a fake, the sample first: `image`, `label`; or `audio`, `mel`."""
        if self.generator_arguments is not None:
            return self.discriminator_arguments
        return (self.sample_name, "label") if self.num_classes else (self.sample_name,)

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the tensors of a batch that networks from Python receive, besides the sample: `mel`, `speaker`."""
        if self.generator_arguments is None:
            return ()
        both = dict.fromkeys((*self.generator_arguments, *self.discriminator_arguments[1:]))
        return tuple(name for name in both if name != "latent")

    def real_batch(self, real: Batch) -> Batch:
        """Return real samples for networks and penalties; no labels in a game of images without classes."""
        if self.num_classes or self.generator_arguments is not None or "label" not in real.tensors:
            return real
        return replace(real, tensors={name: value for name, value in real.tensors.items() if name != "label"})

    def feed(self, stream: str, real: Batch) -> TurnInputs:
        """Return the inputs of a turn: labels are drawn, other arguments are the real ones."""
        names = {*self.discriminator_arguments[1:], *(self.generator_arguments or ())}
        batch = self.real_batch(real)
        tensors = {name: value for name, value in batch.tensors.items() if name in names}
        if self.latent or not self.reads_batches:
            z, y = self.draw(stream, real.rows)  # a drawn y replaces the real one; without `num_classes` it is None
            tensors |= present_tensors(latent=z, label=y)
        return TurnInputs(
            rows=real.rows,
            seed=self.seed,
            tensors=tensors,
            real=batch,
            discriminator_arguments=self.discriminator_arguments,
            generator_arguments=self.generator_arguments,
        )


def latent_of(generator: nn.Module) -> int:
    """Return the generator's latent length, 0 for none; `ConfigError` for an attribute that is none, or missing."""
    latent = getattr(generator, "latent", None)
    if type(latent) is int and latent >= 0:  # not True for 1
        return latent
    problem = "no attribute `latent`" if latent is None else f"latent={shorten(latent)}"
    raise ConfigError(
        f"model: {type(generator).__name__} has {problem}; set self.latent to the length of z, an int, 0 for none"
    )
