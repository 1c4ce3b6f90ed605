"""Base class of metrics of the tokens that a generator returns."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from paragan.core.errors import ConfigError
from paragan.core.metric import Needs, SamplePairs
from paragan.metrics._options import CodebookOptions
from paragan.metrics.base.running import RunningMetric


@dataclass(frozen=True)
class CodebookMetric(RunningMetric):
    """A metric of how often each code occurs in all samples. count_LK: of each code, int64."""

    needs = frozenset({Needs.TOKENS})
    reference = "held_out"  # G encodes those samples; their own values are not compared
    added = ("count_LK",)
    options: CodebookOptions = CodebookOptions()
    count_LK: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.int64))

    @classmethod
    def from_reference(cls, real: Any = None, options: CodebookOptions | None = None) -> Self:
        """Return an empty metric. Raises `ConfigError` without the number of codes."""
        if options is None or options.codes is None:
            raise ConfigError(
                f"evaluation.metrics: {cls.name} needs the size of the codebook; pass "
                f"evaluation.metrics=[{{name: {cls.name}, codes: K}}]"
            )
        count_LK = torch.zeros(options.codebooks, options.codes, dtype=torch.int64)
        return cls(options=options, count_LK=count_LK)

    def protocol(self) -> dict[str, Any]:
        """Return number and size of the codebooks."""
        return dict(vars(self.options))

    def update(self, samples: SamplePairs) -> Self:
        """Return a metric that includes the tokens of these samples.

        Raises `ConfigError` for a generator without `tokens`, and for tokens of other codebooks.
        """
        tokens = samples.extra.get("tokens")
        if tokens is None:
            raise ConfigError(
                f"evaluation.metrics: {self.name} needs tokens, which G does not return; return "
                "paragan.GeneratorOutput(samples, {'tokens': tokens}), or leave it out"
            )
        codebooks, codes = self.count_LK.shape
        # a tensor without an axis of codebooks is one level, and so refused below where there are several
        levels = [tokens] if codebooks == 1 or tokens.dim() < 2 else list(tokens.unbind(1))
        are_codes = not tokens.is_floating_point() and bool(((tokens >= 0) & (tokens < codes)).all())
        if len(levels) != codebooks or not are_codes:
            shape = "x".join(map(str, tokens.shape[1:])) or "one number"
            largest = tokens.max() if tokens.numel() else "none"
            has = f"the tokens of a sample are {shape}, {tokens.dtype}, the largest is {largest}"
            set_to = f"codebooks={codebooks} and codes={codes}"
            raise ConfigError(f"evaluation.metrics: {self.name}: {has}, but {set_to}; set both to those of G")
        counts = [torch.bincount(level.flatten().cpu(), minlength=codes) for level in levels]
        return self.including(count_LK=torch.stack(counts))

    def compute(self) -> float:
        """Return the mean over the codebooks. Raises `ConfigError` without samples."""
        if not int(self.count_LK.sum()):
            raise ConfigError(f"score: {self.name} has no samples; use data with at least one held-out sample")
        return float(self.of_each(self.count_LK.double()).mean())

    @abstractmethod
    def of_each(self, count_LK: Tensor) -> Tensor:
        """Return the value of each codebook, float64 (L,). count_LK: of each code, float64."""
