"""Sampler: a trained generator without the rest of its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.printable import counted, size_text
from paragan.core.source import Source
from paragan.evaluation.fixed_samples import fetch_pairs
from paragan.export.applicable import Applicable
from paragan.export.application import Application, find_application
from paragan.export.class_labels import Label, as_list, check_count, class_numbers
from paragan.export.generator_file import GeneratorInfo
from paragan.export.sampled_images import SampledImages
from paragan.export.summary import Summarised
from paragan.game import latents as latent_draws
from paragan.game.label_use import gives_equal_images, ignores_labels
from paragan.game.mixture import Mixture
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_images, with_steps

_PAIRS_AT_ONCE = 8  # input images and the layers at their size need more memory than latents do


@runtime_checkable
class StyledGenerator(Protocol):
    """A generator that truncates its styles; it is called with (z, y, shift)."""

    def truncation_shift(self, z_BZ: Tensor, y_B: Tensor | None, psi: float) -> Tensor:
        """Return the shift that scales the distance of the styles from their mean by `psi`."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampler(Applicable, Summarised):
    """A generator ready to sample, with averaged weights if the run has them.

    `Applicable` adds `apply` to its `application`; `Summarised` describes it for `print`.

    info: facts that the config lacks. seed: of the run. config: of the run. held_out: opens the
    held-out data; None if the generator comes from a file. score: newest one of the run, or empty. origin: the
    project whose file this is, and what of it was read; empty for a run and an exported file.
    """

    net: nn.Module
    info: GeneratorInfo
    seed: int
    config: Any
    held_out: Callable[[], Source] | None = None
    score: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""

    def __repr__(self) -> str:
        classes = f", {counted(self.num_classes, 'class')}" if self.num_classes else ""
        return f"<generator {self.config.model.name}, {size_text(self.info.shape)}{classes}, step {self.info.step}>"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Class names for `labels`; empty for an unconditional generator."""
        return self.info.class_names if self.num_comparable_classes else ()

    @property
    def num_classes(self) -> int:
        """Number of classes of the generator; 0: unconditional."""
        return int(getattr(self.net, "num_classes", len(self.info.class_names)))

    @cached_property
    def num_comparable_classes(self) -> int:
        """Number of classes whose images differ; 0 also for a generator that ignores its labels."""
        if not self.num_classes or self.takes_condition:  # with an input image: the test calls it with latents alone
            return self.num_classes
        prior = replace(self._prior(None), device=next(self.net.parameters()).device)
        # the cheap question first; equal images may also be those of classes that have hardly trained
        is_ignored = gives_equal_images(self.net, prior) and ignores_labels(copy_networks(self.net), prior)
        return 0 if is_ignored else self.num_classes

    @property
    def takes_condition(self) -> bool:
        """Whether the generator maps images to images."""
        return getattr(self.net, "takes_condition", False) is True

    @property
    def mode(self) -> Mode:
        """Sampling mode of the run, the default of `sample`."""
        mode: Mode = self.config.evaluation.sampling
        return mode

    def sample(
        self,
        n: int,
        labels: Label | Sequence[Label] | None = None,
        seed: int | None = None,
        truncation: float | None = None,
        mode: Mode | None = None,
        conditions: Tensor | None = None,
        *,
        steps: int | None = None,
    ) -> SampledImages:
        """Sample n images.

        Equal seeds give equal images, and the images of a smaller n are the first of a larger one.

        labels: classes by name or number, one or several, taken in turn; None: drawn as in training.
        seed: of latents and labels; None: the run's.
        truncation: in (0, 1]; bounds every component of a latent (`game.latents.truncated`) or, for
        a generator with styles, scales the distance from the mean style: smaller is more typical
        and less varied.
        mode: `eval`, or `train-stats` as in training (batch statistics and dropout); None: the
        run's.
        conditions: input images of an image-to-image generator, (n, C, H, W) in [-1, 1]; None: the
        first n held-out ones.
        steps: of the solver of a generator that has one; None: those of the run. Raises
        `ConfigError` for any other value.
        """
        inputs = self.conditions(n, conditions)
        z_BZ = self.latents(n, seed, truncation)
        y_B = self.labels(n, labels, seed)
        with with_steps(self.net, steps):
            return self.generate(z_BZ, y_B, mode=mode, conditions=inputs, seed=seed, truncation=truncation)

    def application(
        self, direction: str | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> Application:
        """Return what a generator of images from images does."""
        if not self.takes_condition:
            raise ConfigError("apply: it makes images from latents, not from a file; use `sample`")
        if direction is not None:
            raise ConfigError("apply: this generator has one direction; leave --direction out")

        def call(x_BCHW: Tensor) -> Tensor:
            z_BZ = self.latents(len(x_BCHW), seed)
            return self.generate(z_BZ, None, mode=mode, conditions=x_BCHW, seed=seed).tensor

        return find_application(self.net, call, self.info.condition_shape)

    def blocks(
        self,
        n: int,
        labels: Label | Sequence[Label] | None = None,
        seed: int | None = None,
        truncation: float | None = None,
        mode: Mode | None = None,
        *,
        steps: int | None = None,
        is_wanted: Sequence[bool] | None = None,
    ) -> Iterator[tuple[int, SampledImages]]:
        """Yield the images of `sample` from latents in blocks of 64, each with the number of its first.

        `sample` holds all images in memory; this is for any number of them. is_wanted: for each image; blocks
        without one are left out.
        """
        chosen_K = None if labels is None else self.labels(len(as_list(labels)), labels)
        prior = self._prior(seed)
        for first in range(0, n, latent_draws.BLOCK):
            rows = range(first, min(first + latent_draws.BLOCK, n))
            if is_wanted is not None and not any(is_wanted[row] for row in rows):
                continue
            z_BZ, y_B = latent_draws.draw_block(prior, first // latent_draws.BLOCK, len(rows))
            if chosen_K is not None:
                y_B = chosen_K[torch.tensor(rows) % len(chosen_K)]
            z_BZ = self._truncated(z_BZ, truncation)
            with with_steps(self.net, steps):  # without the `yield`: the caller may use the generator in between
                images = self.generate(z_BZ, y_B, mode=mode, seed=seed, truncation=truncation, first_row=first)
            yield first, images

    def conditions(self, n: int, images: Tensor | None = None) -> Tensor | None:
        """Return the input images of n samples; None for a generator that takes latents only."""
        if not self.takes_condition:
            if images is not None:
                raise ConfigError("conditions: this generator has no input images; leave them out")
            return None
        if images is None:
            return self.pairs(n)[1]
        shape = self.info.condition_shape
        if tuple(images.shape) != (n, *shape):
            raise ConfigError(
                f"conditions: the tensor has the shape {size_text(images.shape)}; pass {n} of {size_text(shape)}"
            )
        return images

    @property
    def num_pairs(self) -> int:
        """Number of held-out pairs. Raises `ConfigError` if the data is not available."""
        return len(self._pairs)

    def pairs(self, n: int) -> tuple[Tensor, Tensor]:
        """Return targets and conditions of the first n held-out pairs, in [-1, 1]."""
        if type(n) is not int or not 0 < n <= self.num_pairs:
            raise ConfigError(
                f"n={n!r}, but there are {self.num_pairs} held-out pairs; pass conditions, or use `apply`"
            )
        return fetch_pairs(self._pairs, first=0, count=n)

    @cached_property
    def _pairs(self) -> Source:
        source = None if self.held_out is None else self.held_out()
        if source is None or not source.has_pairs:
            raise ConfigError(
                "conditions are required, because this generator has no data; pass conditions=TENSOR, or use `apply`"
            )
        return source

    def latents(self, n: int, seed: int | None = None, truncation: float | None = None) -> Tensor:
        """Draw the latents z_BZ of n images.

        They are not truncated for a generator with styles, where `generate` truncates the styles.
        """
        check_count(n)
        return self._truncated(latent_draws.draw(self._prior(seed), n).z_BZ, truncation)

    def _truncated(self, z_BZ: Tensor, truncation: float | None) -> Tensor:
        truncated_BZ = latent_draws.truncated(z_BZ, truncation)  # also checks the value
        if isinstance(self.net, StyledGenerator):
            return z_BZ
        return torch.cat([truncated_BZ[:, : self.num_free], z_BZ[:, self.num_free :]], 1)

    @property
    def num_free(self) -> int:
        """Number of components of a latent, without the last one of a mixture, which selects the member."""
        latent: int = self.net.latent  # type: ignore[assignment]
        return latent - 1 if isinstance(self.net, Mixture) else latent

    def walk(self, points_KBZ: Tensor, frames: int) -> Iterator[Tensor]:
        """Yield latents, evenly spaced on the closed path through K points; a mixture keeps its members."""
        for z_BZ in latent_draws.walk(points_KBZ[..., : self.num_free], frames):
            yield torch.cat([z_BZ, points_KBZ[0, :, self.num_free :]], 1)

    def labels(
        self, n: int, labels: Label | Sequence[Label] | None = None, seed: int | None = None, option: str = "labels"
    ) -> Tensor | None:
        """Return y_B of n images: the given classes in turn, or drawn. option: name in messages."""
        if labels is None:
            check_count(n)
            return latent_draws.draw(self._prior(seed), n).y_B
        numbers = class_numbers(labels, self.class_names, self.num_classes, option)
        return torch.tensor(numbers).repeat(-(-n // len(numbers)))[:n]

    def generate(
        self,
        z_BZ: Tensor,
        y_B: Tensor | None = None,
        progress: Callable[[int], None] = lambda done: None,
        mode: Mode | None = None,
        conditions: Tensor | None = None,
        seed: int | None = None,
        *,
        shift_BLW: Tensor | None = None,
        truncation: float | None = None,
        first_row: int = 0,
    ) -> SampledImages:
        """Generate the images of these latents in batches.

        progress: receives the number of finished images. seed: of the random numbers of layers, as dropout; they also
        depend on the number of each image, which is `first_row` for the first. For a generator with styles, either
        shift_BLW is added to the styles, or truncation computes it; latents are truncated when they are drawn.
        """
        if shift_BLW is not None and truncation is not None:
            raise ConfigError("generate: shift_BLW and truncation both move the styles; pass one of the two")
        mode = mode or self.mode
        seed = self.seed if seed is None else seed  # of dropout
        net = CalledNetwork(module=self.net)
        device = next(self.net.parameters()).device
        if truncation is not None and isinstance(self.net, StyledGenerator):
            shift_BLW = self.net.truncation_shift(z_BZ.to(device), None if y_B is None else y_B.to(device), truncation)
        inputs = z_BZ, y_B, conditions, shift_BLW
        block = latent_draws.BLOCK if conditions is None else _PAIRS_AT_ONCE
        images: Tensor | None = None
        for first in range(0, len(z_BZ), block):
            end = min(first + block, len(z_BZ))
            z, y, condition, shift = (None if x is None else x[first:end].to(device) for x in inputs)
            assert z is not None
            row = first_row + first
            x = generate_images(net, z, y, block, condition, mode, shift_BLW=shift, seed=seed, first=row)
            images = torch.empty(len(z_BZ), *x.shape[1:]) if images is None else images
            images[first:end] = x.cpu()  # concatenating a list would need the memory twice
            progress(end)
        assert images is not None
        return SampledImages(images, None if y_B is None else tuple(y_B.tolist()))

    def _prior(self, seed: int | None) -> Prior:
        if seed is not None and not isinstance(seed, Integral):
            raise ConfigError(f"seed must be an integer, or None for the run's, not {seed!r}")
        latent: Any = self.net.latent
        prior = Prior(seed=self.seed if seed is None else seed, latent=int(latent), num_classes=self.num_classes)
        is_counted = len(self.info.class_sizes) == prior.num_classes
        return replace(prior, class_sizes=self.info.class_sizes) if is_counted else prior
