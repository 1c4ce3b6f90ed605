"""Sampler of a generator with named inputs, such as a vocoder or a codec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.evaluation.fixed_tensors import FixedTensors, is_pictured
from paragan.export.sampler import Sampler
from paragan.game.named_inputs import generator_arguments, input_names
from paragan.game.network import CalledNetwork
from paragan.game.prior import Prior
from paragan.game.sampling import Mode


@dataclass(frozen=True, eq=False)
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
        """Names of the generator's inputs."""
        return input_names(self.net)

    def sample(self, *arguments: Any, **options: Any) -> NoReturn:
        """Raise `ConfigError`: the generator needs its inputs."""
        call = ", ".join(f"{name}={name}" for name in self.inputs)
        maps = f"{' and '.join(self.inputs)} to {self.sample_name}"
        raise ConfigError(f"sample: this generator maps {maps}; call net({call})")

    def held_out_pictures(
        self, n: int | None = None, seed: int | None = None, mode: Mode | None = None
    ) -> tuple[Tensor, int]:
        """Return pictures of the first n held-out samples, and of what G makes of their inputs.

        Returns x_BCHW in [-1, 1] and the pictures per row. Raises `ConfigError` for a file, which has
        no data, and for samples without pictures.
        """
        if self.held_out is None:
            needed = " and ".join(self.inputs)
            problem = f"this generator needs {needed}, and an exported file has no data"
            raise ConfigError(f"{problem}; pass the run folder")
        source = self.held_out()
        spec = source.tensors[self.sample_name]
        if not is_pictured(spec.shape):
            shape = "x".join(map(str, spec.shape))
            hint = "call paragan.load(RUN).net with its inputs"
            raise ConfigError(f"samples of {shape} have no pictures; {hint}")
        prior = Prior(
            self.seed if seed is None else seed,
            int(self.net.latent),  # type: ignore[arg-type]
            device=next(self.net.parameters()).device,
            arguments=(self.sample_name,),
            generator_arguments=generator_arguments(self.net, source.tensors),
        )
        sheet = FixedTensors(source, mode or self.mode).sheet(CalledNetwork(self.net), prior, n)
        return sheet.images.cpu(), sheet.columns


def refuse_other_inputs(sampler: Sampler, command: str) -> None:
    """Raise `ConfigError` for a generator whose images do not come from latents and classes alone."""
    if isinstance(sampler, TensorSampler):
        needed = f"needs {' and '.join(sampler.inputs)}"
    elif sampler.takes_condition:
        needed = "maps images to images"
    else:
        return
    raise ConfigError(f"{command}: this generator {needed}, not latents alone; use `sample`")
