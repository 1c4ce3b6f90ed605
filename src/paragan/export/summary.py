"""What a trained generator is, in a few lines: for `print`, and for the model card."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import nn

from paragan.core.printable import counted, join_some, size_text
from paragan.export.application import Kind
from paragan.export.generator_file import GeneratorInfo

_MAX_CLASS_NAMES = 10


class Summarised(ABC):
    """A trained generator that describes itself: `print(pg.load(RUN))` shows one screen.

    The texts are those of a generator of images; others override them.
    """

    net: nn.Module
    info: GeneratorInfo
    config: Any
    score: Mapping[str, Any]
    origin: str

    @property
    @abstractmethod
    def takes_condition(self) -> bool:
        """Whether the generator maps images to images."""

    @property
    @abstractmethod
    def num_classes(self) -> int:
        """Number of classes of the generator; 0: unconditional."""

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes whose images differ."""

    @property
    def input_kind(self) -> Kind | None:
        """What `apply` takes; None: nothing."""
        return "image" if self.takes_condition else None

    def input_texts(self) -> list[str]:
        """Return what the generator takes, an entry for each input."""
        texts = [f"an image of {size_text(self.info.condition_shape)} in [-1, 1]"] if self.takes_condition else []
        texts += [f"{self.net.latent} standard normal numbers"] if self.net.latent else []
        return [*texts, "a class"] if self.num_classes else texts

    def output_text(self) -> str:
        """Return what the generator makes."""
        return f"images of {size_text(self.info.shape)} (channels, height, width) in [-1, 1]"

    def call_texts(self) -> list[str]:
        """Return calls, as Python: one that makes samples, or one for each direction of `apply`."""
        labels = f", labels={self.num_classes - 1}" if self.num_classes else ""
        return ["generator.apply(image)" if self.takes_condition else f"generator.sample(16, seed=0{labels})"]

    def __str__(self) -> str:
        num_weights = sum(weight.numel() for weight in self.net.parameters())
        trained = f"{counted(self.info.step, 'step')}, {counted(self.info.images, 'sample')}"
        names = self.class_names
        listed = join_some(names, _MAX_CLASS_NAMES)
        score = "  ".join(f"{name} {value:.4g}" for name, value in metric_values(self.score).items())
        rows = {
            "generator": f"{self.config.model.name}, {num_weights:,} weights; {self.origin or trained}",
            "input": " and ".join(self.input_texts()),
            "output": self.output_text(),
            "classes": f"{len(names)}: {listed}" if names else "none",
            "score": score or "none",
            "call": "; ".join(self.call_texts()),
        }
        return "\n".join(f"{name:10}{text}" for name, text in rows.items())


def metric_values(score: Mapping[str, object]) -> dict[str, float]:
    """Return the metrics of a `score.json`, whose other floats are the place in the run."""
    return {k: value for k, value in score.items() if isinstance(value, float) and k not in ("kimg", "seconds")}
