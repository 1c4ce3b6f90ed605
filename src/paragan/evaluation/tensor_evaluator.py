"""Evaluator of generators of named tensors, by comparison with the samples of their inputs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs, SamplePairs
from paragan.core.types import Batch, Rows
from paragan.evaluation.fixed_samples import fetch_batch
from paragan.evaluation.generated_features import require_finite
from paragan.evaluation.pair_evaluator import BLOCK, TargetEvaluator
from paragan.game.player import Player
from paragan.game.prior import Prior
from paragan.game.sampling import generate_tensors, sampling_network


@dataclass(kw_only=True)
class TensorEvaluator(TargetEvaluator):
    """Evaluator of G by held-out samples, each compared with what G makes of its inputs.

    sample: name of the tensor that G generates. inputs: those of G. Raises `ConfigError` for metrics
    that need something else.
    """

    sample: str
    inputs: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.held_out):
            hint = "pass a mapping of tensors or a Dataset as held_out"
            raise ConfigError(f"evaluation.metrics needs held-out samples by number, not streamed ones; {hint}")
        super().__post_init__()

    @property
    def available(self) -> frozenset[Needs]:
        """What metrics can read of the samples."""
        spec = self.held_out.tensors[self.sample]
        needs = {Needs.TOKENS}
        if set(self.inputs) - {"latent"}:
            needs.add(Needs.PAIRS)
        if len(spec.shape) == 3:
            needs.add(Needs.IMAGES)
        if len(spec.shape) == 2 and spec.shape[0] in (1, 2) and spec.dtype.is_floating_point:
            needs.add(Needs.AUDIO)
        return frozenset(needs)

    @property
    def target(self) -> str:
        """What samples are compared with, in words."""
        return f"{self.sample} of each sample"

    def generated_blocks(self, player: Player, prior: Prior) -> Iterator[SamplePairs]:
        """Generate samples from the inputs of held-out ones."""
        generator = sampling_network(player, self.held_out.argument)
        # a padded sample is compared alone, so that no value depends on the others
        is_padded = any(spec.padded_axis is not None for spec in self.held_out.tensors.values())
        block = 1 if is_padded else BLOCK
        for first in range(0, self.num_samples, block):
            count = min(block, self.num_samples - first)
            batch = fetch_batch(self.held_out, Rows(step=0, first=first, count=count, total=self.num_samples), prior)
            feed = prior.feed("score", batch)
            output = generate_tensors(generator, feed.fake_inputs, self.options.sampling, prior.seed, first)
            generated, target = self._without_padding(output.images, feed.real_sample, batch)
            yield SamplePairs(generated, target, tokens_without_padding(output.extra, self._mask(batch)))

    def _mask(self, batch: Batch) -> Tensor | None:
        """Return the mask (1, L) of the values that G encodes as tokens: the sample, or else its first padded input."""
        if not any(Needs.TOKENS in metric.needs for metric in self.empty):
            return None
        padded = {name for name, spec in self.held_out.tensors.items() if spec.padded_axis is not None}
        name = next((name for name in (self.sample, *self.inputs) if name in padded), None)
        return None if name is None else batch.tensors[f"{name}_mask"]

    def _without_padding(self, generated_B: Tensor, target_B: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        if generated_B.shape != target_B.shape:
            generated, target = ("x".join(map(str, x.shape[1:])) for x in (generated_B, target_B))
            problem = f"G generates {generated} for {self.sample} of {target}; generate equal shapes"
            raise ConfigError(f"evaluation.metrics: {problem}, or leave evaluation.metrics out")
        require_finite(generated_B)
        axis = self.held_out.tensors[self.sample].padded_axis
        if axis is None:
            return generated_B, target_B
        length = int(batch.tensors[f"{self.sample}_mask"].sum())
        return generated_B.narrow(axis + 1, 0, length), target_B.narrow(axis + 1, 0, length)


def tokens_without_padding(extra: Mapping[str, Tensor], mask_1L: Tensor | None) -> Mapping[str, Tensor]:
    """Return what G returned of one sample, without the `tokens` of padding on their last axis.

    mask_1L: of the values that the tokens encode; None: no padding. `tokens_mask` (1, N) of G decides; without it each
    of N tokens stands for L / N values: of 12 tokens for 700 values, padded to 1200, the first 7 remain. Raises
    `ConfigError` if L / N is no whole number.
    """
    tokens = extra.get("tokens")
    if tokens is None or mask_1L is None or tokens.dim() < 2:
        return extra
    if "tokens_mask" in extra:
        return {**extra, "tokens": tokens[..., extra["tokens_mask"][0].bool()]}
    length = int(mask_1L.sum())
    padded = mask_1L.shape[1]
    if length == padded:
        return extra
    count = tokens.shape[-1]
    if not count or padded % count:
        raise ConfigError(
            f"evaluation.metrics: G returns {count} tokens for a sample of {length} values padded to "
            f"{padded}, which is not a multiple of {count}: the tokens of the padding are unknown; return "
            "tokens_mask (B, N) next to tokens, or pass buckets that are multiples"
        )
    values_per_token = padded // count
    return {**extra, "tokens": tokens[..., : -(-length // values_per_token)]}
