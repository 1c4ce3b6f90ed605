"""Run of a `paragan.Trainer`: its records, its networks, and samples."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from paragan.api.trained import warn
from paragan.api.training import Run
from paragan.build.initial_weights import merged_generator
from paragan.checkpoint import generator_state
from paragan.core.layout import shapes_of
from paragan.core.network_factory import copy_networks
from paragan.core.tensor_game import LATENT
from paragan.export.sampled_images import SampledImages
from paragan.export.tensor_samples import Labels, sample_tensors
from paragan.game.prior import Prior
from paragan.game.state import check_same
from paragan.layers.update_once import release_updates

if TYPE_CHECKING:
    from paragan.api.trainer import Trainer


class TensorRun(Run):
    """A run folder of a `Trainer`: records and networks."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer.folder)
        self.trainer = trainer

    @cached_property
    def generator(self) -> nn.Module:  # type: ignore[override]
        """A copy of the generator with the newest checkpoint's weights, in evaluation mode.

        The weights are averaged ones if the run averages (`g.ema`). Read once.
        """
        state = generator_state.read_newest(self.folder, warn)
        net = release_updates(copy_networks(self.trainer.generator).cpu())
        if self.trainer.config.g.trains_part:
            return merged_generator(net, self.trainer.config, state, warn).eval().requires_grad_(False)
        check_same(shapes_of(state.weights), shapes_of(net.state_dict()), str(state.path))
        net.load_state_dict(state.weights)
        return net.eval().requires_grad_(False)

    def sample(  # type: ignore[override]
        self, n: int, labels: Labels | None = None, seed: int | None = None
    ) -> SampledImages | Tensor:
        """Return n samples of `generator`: images as of `Run.sample`, other tensors as (n, …).

        Its inputs other than latents are those of the first held-out samples, or training samples
        without these. seed: of the latents; None: the run's. labels: for an input `label`, taken in
        turn. Raises `ConfigError`.
        """
        trainer = self.trainer
        names = trainer.generator_arguments
        prior = Prior(
            seed=trainer.config.seed if seed is None else seed,
            latent=self.generator.latent if LATENT in names else 0,  # type: ignore[arg-type]
            dtype=trainer.dtype,
            arguments=trainer.arguments,
            generator_arguments=names,
        )
        source = trainer.source if trainer.held_out is None else trainer.held_out
        return sample_tensors(self.generator, prior, source, n, labels, trainer.config.evaluation.sampling)

    def resume(self, settings: Mapping[str, Any] | None = None) -> TensorRun:
        """Train from the newest checkpoint, and return the run. settings: as in `Run.resume`."""
        return self.trainer.resumed(settings).run()
