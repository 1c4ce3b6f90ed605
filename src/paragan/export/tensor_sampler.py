"""Sampler of a generator with named inputs, such as a vocoder or a codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch import Tensor, nn

from paragan.core import registry
from paragan.core.errors import ConfigError, DataError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.source import AudioFormat, Source
from paragan.core.tensor_game import LATENT, dtype_of_weights
from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured
from paragan.export.application import Application, Kind, find_application
from paragan.export.sampled_images import SampledImages
from paragan.export.sampler import Sampler
from paragan.export.tensor_samples import Labels, sample_tensors
from paragan.game.named_inputs import generator_arguments, input_names
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior, latent_of
from paragan.game.sampling import Mode, generate_tensors


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TensorSampler(Sampler):
    """A trained generator that is called with its inputs by name: `sampler.net(mel=mel)`.

    From one image or audio (a vocoder) it makes samples by `apply`, also with two directions (CycleGAN); from latents
    alone by `sample`; from other tensors by `sample` with the run's data, or by `net(...)`.

    Of a `Sampler` it has `latents`, `mode`, `apply` and the summary; `generate`, `blocks`, `labels`, `conditions` and
    `pairs` are for generators of images from latents and classes, see `check_inputs`. sample_name: of the tensor that
    it generates. `info.shape`: that of one sample.
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
        """What `apply` does, as far as it is known without data; None: it refuses this generator."""
        with suppress(ConfigError):
            return replace(self, held_out=None).application(next(iter(self._directions), None))
        return None

    @property
    def _directions(self) -> Mapping[str, nn.Module]:
        """Networks that each map images to images, as those of CycleGAN; empty for other generators."""
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
        channels, height, width = self.info.shape  # of CycleGAN's sample, an image of each domain side by side
        call = partial(self._call, directions[direction], lambda x: (x,), seed, mode)
        return find_application(self.net, call, (channels, height, width // 2))

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
        """Return the format of the run's audio; None for data sets without a function `audio_format`."""
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
            dtype=dtype_of_weights(self.net),
            discriminator_arguments=(self.sample_name,),
            generator_arguments=names,
        )


def check_inputs(sampler: Sampler, command: str) -> None:
    """Raise `ConfigError` for a generator whose images do not come from latents and classes alone."""
    if isinstance(sampler, TensorSampler):
        needed = f"needs {' and '.join(sampler.inputs)}"
    elif sampler.takes_condition:
        needed = "maps images to images"
    else:
        return
    raise ConfigError(f"{command}: this generator {needed}, not latents alone; use `sample`")
