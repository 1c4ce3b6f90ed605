"""Sampler of a generator with named inputs, such as a vocoder or a codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import SupportsIndex

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.settings_tree import shorten
from paragan.core.source import AudioFormat, Source
from paragan.core.tensor_game import LATENT
from paragan.core.types import Batch, Rows
from paragan.evaluation.fixed_samples import fetch_batch
from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured
from paragan.export.application import Application, Kind, find_application
from paragan.export.class_labels import check_count
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.game import latents
from paragan.game.named_inputs import generator_arguments, input_names
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior, latent_of
from paragan.game.sampling import Mode, generate_tensors

Labels = SupportsIndex | Sequence[SupportsIndex]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TensorSampler(Sampler):
    """A trained generator that is called with its inputs by name: `sampler.net(mel=mel)`.

    sample_name: of the tensor that it generates. `info.shape`: that of one sample.
    """

    sample_name: str = ""

    @property
    def num_classes(self) -> int:
        """0: classes, if any, are inputs."""
        return 0

    @property
    def inputs(self) -> tuple[str, ...]:
        return input_names(self.net)

    def sample(  # type: ignore[override]
        self, n: int, labels: Labels | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> SampledImages | Tensor:
        """Sample as `sample_tensors` does. Raises `ConfigError` for a file whose generator needs data."""
        source = None if self.held_out is None else self.held_out()
        if source is None and self.inputs != (LATENT,):
            call = ", ".join(f"{name}={name}" for name in self.inputs)
            maps = f"{' and '.join(self.inputs)} to {self.sample_name}"
            raise ConfigError(f"sample: this generator maps {maps}, and there is no data here; call net({call})")
        return sample_tensors(self.net, self._named_prior(source, seed), source, n, labels, mode or self.mode)

    @cached_property
    def _applied(self) -> Application | None:
        """What `apply` does, as far as it is known without data; None for a generator that it refuses."""
        with suppress(ConfigError):
            return replace(self, held_out=None).application(next(iter(self._directions), None))
        return None

    @property
    def _directions(self) -> Mapping[str, nn.Module]:
        return getattr(self.net, "directions", {})

    @property
    def input_kind(self) -> Kind | None:
        return None if self._applied is None else self._applied.kind

    def input_texts(self) -> list[str]:
        """Return what `apply` takes, or the names of the generator's inputs."""
        application = self._applied
        if application is None:
            return list(self.inputs)
        rate = f" at {application.audio.sample_rate:,} Hz" if application.audio else ""
        channels = "1 channel" if application.channels == 1 else f"{application.channels} channels"
        return [f"{application.kind} of {channels}{rate}, of any size, in [-1, 1]"]

    def output_text(self) -> str:
        """Return what `apply` makes, or the tensor that the generator makes."""
        size = "x".join("any length" if axis == -1 else str(axis) for axis in self.info.shape)
        if self._applied is not None:
            scale = self._applied.scale
            result = f"{self._applied.kind} of {'the same size' if scale == 1 else f'{scale} times the size'}"
            return f"{result}; samples of {size} in training"
        return f"{self.sample_name} of {size}"

    def call_texts(self) -> list[str]:
        """Return calls of `apply`, one for each direction, of `sample`, or of the network."""
        if self._applied is not None:
            options = [f', "{name}"' for name in self._directions] or [""]
            return [f"generator.apply({self._applied.kind}{option})" for option in options]
        if self.inputs == (LATENT,):
            return ["generator.sample(16, seed=0)"]
        return [f"generator.net({', '.join(f'{name}={name}' for name in self.inputs)})"]

    def application(
        self, direction: str | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> Application:
        """Return what the generator does with its one input, or one of its directions with an image."""
        directions = self._directions
        if direction is None and not directions:
            return self._of_one_input(seed, mode)
        if direction is None or direction not in directions:
            listed = " and ".join(directions) or "none; leave --direction out"
            raise ConfigError(f"apply: directions of this generator, for --direction: {listed}")
        channels, height, width = self.info.shape  # of two images side by side
        call = partial(self._call, directions[direction], lambda x: (x,), seed, mode)
        multiple = getattr(self.net, "input_multiple", None)
        return find_application(self.net, call, (channels, height, width // 2), multiple)

    def _of_one_input(self, seed: int | None, mode: Mode | None) -> Application:
        names = [name for name in self.inputs if name != LATENT]
        if len(names) != 1:
            listed = " and ".join(names) or "latents alone"
            raise ConfigError(f"apply: this generator takes {listed}, not one file; call paragan.load(RUN).net")
        audio = self._audio_format()
        derive = None if audio is None else audio.derived.get(names[0])

        def inputs(x: Tensor) -> tuple[Tensor, ...]:
            value = x if derive is None else derive(x)
            return tuple(self.latents(len(x), seed) if name == LATENT else value for name in self.inputs)

        shape = self._input_shape(names[0]) if derive is None else tuple(self.info.shape)
        call = partial(self._call, self.net, inputs, seed, mode)
        return find_application(self.net, call, shape, audio=audio, derive=derive)

    def _call(
        self,
        net: nn.Module,
        inputs: Callable[[Tensor], tuple[Tensor, ...]],
        seed: int | None,
        mode: Mode | None,
        x: Tensor,
    ) -> Tensor:
        weight = next(net.parameters())
        on_device = tuple(value.to(weight.device, weight.dtype) for value in inputs(x))
        noise = self.seed if seed is None else seed
        return generate_tensors(CalledNetwork(module=net), on_device, mode or self.mode, noise).images.float().cpu()

    def _input_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input of training; that of the sample where the data is not here."""
        with suppress(DataError, ConfigError, OSError):
            if self.held_out is not None and (spec := self.held_out().tensors.get(name)):
                return tuple(spec.shape)
        return self.info.condition_shape

    def _audio_format(self) -> AudioFormat | None:
        if len(self.info.shape) != 2 or self.config.data.name == FROM_MEMORY:
            return None
        module = registry.load_chosen("datasets", self.config.data)
        find_format = getattr(module, "audio_format", None)
        return None if find_format is None else find_format(self.config.data.options)

    def held_out_pictures(
        self, n: int | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> tuple[Tensor, int]:
        """Return pictures of the first n held-out samples, and of what G makes of their inputs.

        Returns x_BCHW in [-1, 1] and the pictures per row. Raises `ConfigError` for a file, which has
        no data, and for samples without pictures.
        """
        if self.held_out is None:
            raise ConfigError(
                f"this generator needs {' and '.join(self.inputs)}, and an exported file has no data; "
                "pass the run folder"
            )
        source = self.held_out()
        spec = source.tensors[self.sample_name]
        if not is_pictured(spec.shape):
            raise ConfigError(f"samples of {spec.shape} are not images; call paragan.load(RUN).net with its inputs")
        sheet = FixedTensors(source, mode or self.mode).sheet(
            CalledNetwork(module=self.net), self._named_prior(source, seed), n
        )
        return sheet.images.cpu(), sheet.columns

    def _named_prior(self, source: Source | None, seed: int | None) -> Prior:
        """Return the prior of the generator's inputs. source: of those that are not drawn."""
        names = (LATENT,) if source is None else generator_arguments(self.net, source.tensors)
        return Prior(
            seed=self.seed if seed is None else seed,
            latent=latent_of(self.net) if LATENT in self.inputs else 0,
            device=next(self.net.parameters()).device,
            dtype=next((p.dtype for p in self.net.parameters() if p.is_floating_point()), torch.float32),
            arguments=(self.sample_name,),
            generator_arguments=names,
        )


def sample_tensors(
    net: nn.Module, prior: Prior, source: Source | None, n: int, labels: Labels | None = None, mode: Mode = "eval"
) -> SampledImages | Tensor:
    """Sample n rows of a generator of named tensors; images (1 or 3, H, W) are `SampledImages`.

    Latents are drawn as for images: equal seeds give equal samples, and those of a smaller n are the first of a larger
    one. Other inputs are those of the samples of `source` in their order, repeated if n is larger. labels: for the
    input `label`, one or several, in turn. Raises `ConfigError` for labels that G cannot take, and for several lengths.
    """
    check_count(n)
    if labels is not None and "label" not in (prior.generator_arguments or ()):
        raise ConfigError("labels: this generator has no input 'label'; leave it out")
    label_K = None if labels is None else _class_numbers(labels)
    generator = CalledNetwork(module=net, place="data" if labels is None else "labels")
    blocks = []
    for first in range(0, n, latents.BLOCK):
        rows = Rows(step=first // latents.BLOCK, first=0, count=min(latents.BLOCK, n - first), total=latents.BLOCK)
        numbers = np.arange(first, first + rows.count)
        batch = Batch(rows) if source is None else fetch_batch(source, rows, prior, numbers % (len(source) or n))
        if label_K is not None:
            label_B = label_K[torch.from_numpy(numbers) % len(label_K)].to(prior.device)
            batch = replace(batch, tensors={**batch.tensors, "label": _in_form_of(batch.tensors["label"], label_B)})
        inputs = prior.feed("sample", batch).fake_inputs
        blocks.append(generate_tensors(generator, inputs, mode, prior.seed, first).images.cpu())
    if len({block.shape[1:] for block in blocks}) > 1:
        raise ConfigError("sample: samples of this generator differ in length; call it with inputs of equal length")
    samples = torch.cat(blocks)
    is_image = samples.dim() == 4 and is_pictured(tuple(samples.shape[1:]))
    return SampledImages(samples.float().clamp(-1, 1)) if is_image else samples


def _class_numbers(labels: Labels) -> Tensor:
    with suppress(TypeError, ValueError, RuntimeError):
        label_K = torch.as_tensor(labels).reshape(-1)
        if len(label_K) and not (label_K.is_floating_point() or label_K.is_complex()):
            return label_K
    raise ConfigError(f"labels is {shorten(labels)}; pass the number of a class, or several, such as [0, 1]")


def _in_form_of(label: Tensor, numbers_B: Tensor) -> Tensor:
    """Return numbers of classes in the form of the data's labels: one number for each sample, or a one-hot row."""
    if label.shape == numbers_B.shape:
        return numbers_B
    classes = label.shape[-1]
    if label.dim() != 2 or not ((numbers_B >= 0) & (numbers_B < classes)).all():
        raise ConfigError(f"labels: the data's labels are rows {tuple(label.shape[1:])}; pass numbers below {classes}")
    return F.one_hot(numbers_B.long(), classes).to(label.dtype)


def check_inputs(sampler: Sampler, command: str) -> None:
    """Raise `ConfigError` for a generator whose images do not come from latents and classes alone."""
    if isinstance(sampler, TensorSampler):
        needed = f"needs {' and '.join(sampler.inputs)}"
    elif sampler.takes_condition:
        needed = "maps images to images"
    else:
        return
    raise ConfigError(f"{command}: this generator {needed}, not latents alone; use `sample`")
