"""Evaluator of generators of named tensors, by comparison with the samples of their inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs, SamplePairs
from paragan.core.option_types import Choice
from paragan.core.source import Source, TensorSpec
from paragan.core.types import Batch, Rows
from paragan.evaluation.chosen_metrics import choose_metrics
from paragan.evaluation.fixed_samples import fetch_batch
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.pair_evaluator import BLOCK, paired_protocol, paired_score
from paragan.evaluation.score import Score
from paragan.evaluation.token_padding import tokens_without_padding
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import Mode, generate_tensors, sampling_network


@dataclass
class TensorEvaluator:
    """Evaluator of G by `num_samples` held-out samples, each compared with what G makes of its inputs.

    sample: name of the tensor that G generates. inputs: those of G. chosen: metrics that a config
    names. Raises `ConfigError` for metrics that need something else.
    """

    held_out: Source
    num_samples: int
    sample: str
    inputs: tuple[str, ...]
    chosen: Sequence[Choice]
    mode: Mode = "eval"
    resamples: int = 0

    def __post_init__(self) -> None:
        if not len(self.held_out):
            hint = "pass a mapping of tensors or a Dataset as held_out"
            raise ConfigError(f"evaluation.metrics needs held-out samples by number, not streamed ones; {hint}")
        self.num_samples = min(self.num_samples, len(self.held_out))
        available = _available(self.held_out.tensors[self.sample], self.inputs)
        metrics = choose_metrics(self.chosen, available)
        self.empty = [metric.kind.from_reference(None, metric.options) for metric in metrics]

    def __call__(self, player: Player, prior: Prior) -> Score:
        """Score a player's sampling generator. Raises `DivergedError` if samples are not finite."""
        return paired_score(self.empty, self._blocks(player, prior), self.resamples, self.protocol)

    @property
    def protocol(self) -> dict[str, Any]:
        """Settings that must be equal where two scores are compared."""
        return paired_protocol(self.empty, f"{self.sample} of each sample", self.num_samples, self.mode)

    def _blocks(self, player: Player, prior: Prior) -> Iterator[SamplePairs]:
        generator = sampling_network(player)
        # a padded sample is compared alone, so that no value depends on the others
        is_padded = any(spec.padded_axis is not None for spec in self.held_out.tensors.values())
        block = 1 if is_padded else BLOCK
        for first in range(0, self.num_samples, block):
            count = min(block, self.num_samples - first)
            batch = fetch_batch(self.held_out, Rows(0, first, count, self.num_samples), prior)
            feed = prior.feed("score", batch)
            made = generate_tensors(generator, feed.fake_inputs, self.mode, prior.seed, first)
            both = self._without_padding(made.images, feed.real_sample, batch)
            yield SamplePairs(*both, tokens_without_padding(made.extra, self._mask(batch)))

    def _mask(self, batch: Batch) -> Tensor | None:
        """Return where what the tokens stand for is not padded, (1, L); None if nothing is."""
        if not any(Needs.TOKENS in metric.needs for metric in self.empty):
            return None
        names = (name for name in (self.sample, *self.inputs) if self._is_padded(name))
        name = next(names, None)
        return None if name is None else batch.tensors[f"{name}_mask"]

    def _is_padded(self, name: str) -> bool:
        spec = self.held_out.tensors.get(name)
        return spec is not None and spec.padded_axis is not None

    def _without_padding(self, made_B: Tensor, target_B: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if made_B.shape != target_B.shape:
            made, target = ("x".join(map(str, x.shape[1:])) for x in (made_B, target_B))
            problem = f"G generates {made} for {self.sample} of {target}; generate equal shapes"
            raise ConfigError(f"evaluation.metrics: {problem}, or leave evaluation.metrics out")
        require_finite(made_B)
        axis = self.held_out.tensors[self.sample].padded_axis
        if axis is None:
            return made_B, target_B
        length = int(batch.tensors[f"{self.sample}_mask"].sum())
        return made_B.narrow(axis + 1, 0, length), target_B.narrow(axis + 1, 0, length)


def _available(spec: TensorSpec, inputs: tuple[str, ...]) -> frozenset[Needs]:
    """Return what metrics can read of samples of this shape. inputs: of G."""
    found = {Needs.TOKENS}
    if set(inputs) - {"latent"}:
        found.add(Needs.PAIRS)
    if len(spec.shape) == 3:
        found.add(Needs.IMAGES)
    if len(spec.shape) == 2 and spec.shape[0] == 1 and spec.dtype.is_floating_point:
        found.add(Needs.AUDIO)
    return frozenset(found)
