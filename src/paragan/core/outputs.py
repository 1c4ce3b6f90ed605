"""Outputs of generators and discriminators, and of the networks of a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from paragan.core.errors import ConfigError
from paragan.core.option_types import Combine


@dataclass(frozen=True)
class DiscriminatorOutput:
    """Output of a discriminator, or of several.

    Logits may have trailing axes (patches); losses are averaged over them per sample. features: of
    one layer, or a list of layers. classes_BK: class logits of an auxiliary classifier
    (`penalties/auxiliary`). members: outputs of several discriminators, by name; then logits_B has
    the mean logit of each, (B, members), and there are no other features and classes.
    """

    logits_B: Tensor
    features: Tensor | Sequence[Tensor] | None = None
    classes_BK: Tensor | None = None
    members: Mapping[str, DiscriminatorOutput] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Any) -> DiscriminatorOutput:
        """Convert what a network returns.

        output: a `DiscriminatorOutput`, logits, (logits, features) or (logits, features, classes); of several
        discriminators a mapping by name, or a list, whose names are numbers. They may be nested: `mpd/0`.
        """
        if isinstance(output, DiscriminatorOutput):
            return output
        if not isinstance(output, (Mapping, list)):
            return cls(*output) if isinstance(output, tuple) else cls(output)
        members = _by_path(output, "")
        if not members:
            raise ConfigError("model: D returned no output; return one for each discriminator")
        means = [mean_per_sample(member.logits_B) for member in members.values()]
        return cls(torch.stack(means, 1), members=members)

    @property
    def by_name(self) -> Mapping[str, DiscriminatorOutput]:
        """The outputs of all discriminators; the name of a single one is empty."""
        return self.members or {"": self}

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """Features of each layer; none for several discriminators, whose members have them."""
        if self.features is None:
            return ()
        return (self.features,) if isinstance(self.features, Tensor) else tuple(self.features)

    def single(self, user: str) -> DiscriminatorOutput:
        """Return this output; `ConfigError` if `user` would receive several discriminators."""
        if self.members:
            raise ConfigError(
                f"{user} does not support several discriminators ({', '.join(self.members)}); leave it out, or let D "
                "return one output"
            )
        return self

    def split(self, sizes: list[int]) -> tuple[DiscriminatorOutput, ...]:
        """Split the samples into pieces of these sizes."""
        values = (self.logits_B, self.features, self.classes_BK, self.members)
        pieces = zip(*(_split(value, sizes) for value in values), strict=True)
        return tuple(
            DiscriminatorOutput(logits_B=logits_B, features=features, classes_BK=classes_BK, members=members)
            for logits_B, features, classes_BK, members in pieces
        )


def _by_path(output: Any, path: str) -> dict[str, DiscriminatorOutput]:
    """Return the outputs of nested mappings and lists by their names, joined with `/`."""
    if isinstance(output, DiscriminatorOutput):
        output = output.members or output  # of several discriminators their outputs
    if isinstance(output, list):
        output = {str(number): member for number, member in enumerate(output)}
    if not isinstance(output, Mapping):
        return {path: DiscriminatorOutput.of(output)}
    outputs: dict[str, DiscriminatorOutput] = {}
    for name, member in output.items():
        outputs |= _by_path(member, f"{path}/{name}" if path else str(name))
    return outputs


def _split(value: Any, sizes: list[int]) -> Sequence[Any]:
    """Split a tensor or an output, or each of a list or mapping; None into as many None."""
    if value is None:
        return [None] * len(sizes)
    if isinstance(value, Mapping):
        members = {name: member.split(sizes) for name, member in value.items()}
        return [{name: pieces[number] for name, pieces in members.items()} for number in range(len(sizes))]
    if isinstance(value, (list, tuple)):
        return list(zip(*(layer.split(sizes) for layer in value), strict=True))
    return list(value.split(sizes))


class _NotRun:
    """Output of a D that did not run; reading it raises `ConfigError`."""

    def __getattr__(self, name: str) -> Any:
        raise ConfigError(
            f"a penalty of G reads D's output ({name}) at a batch where the adversarial loss does not act, so that D "
            "does not run; set uses_discriminator = True in its class"
        )


NOT_RUN: Any = _NotRun()


def mean_per_sample(values: Tensor) -> Tensor:
    """Return one value per sample, (B,): logits of patches are averaged."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


def sum_of(values: Sequence[Tensor]) -> Tensor:
    """Return the sum of tensors of equal shapes; a single one unchanged."""
    return values[0] if len(values) == 1 else torch.stack(list(values)).sum(0)


@dataclass(frozen=True)
class GeneratorOutput:
    """Output of a generator: images, or other samples, which D receives, and extra tensors for objectives."""

    images: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, output: Tensor | GeneratorOutput) -> GeneratorOutput:
        """Convert what a network returns: a `GeneratorOutput`, or images."""
        return output if isinstance(output, GeneratorOutput) else cls(output)


# torch's wrappers find the tensors in what a module returns by pytrees; FSDP2 finds those of
# unregistered dataclasses only since torch 2.13.
for _kind in (DiscriminatorOutput, GeneratorOutput):
    _pytree.register_dataclass(_kind)


def identity(tensor: Tensor) -> Tensor:
    """Return the tensor: gather and sum of a process without other ranks."""
    return tensor


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Outputs of the networks of a turn for one micro-batch.

    images, extra: of the generator (`GeneratorOutput`). whole(x_B): the rows of all ranks
    (`PenaltyContext`), for an objective that compares samples.
    """

    fake: DiscriminatorOutput
    real: DiscriminatorOutput | None = None
    images: Any = None
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    whole: Callable[[Tensor], Tensor] = identity


def discriminator_weights(
    names: Collection[str], combine: Combine, weights: Mapping[str, float], key: str
) -> dict[str, float]:
    """Return the factor of each discriminator's loss, by name.

    names: of `DiscriminatorOutput.by_name`. combine: mean divides by the number of discriminators
    in the same list or mapping. weights: by name, or by that of a list that contains it; 1 if it
    has none. key: the setting of `weights`. Raises `ConfigError` for a name that D does not return.
    """
    groups = Counter(map(_group, names))
    known = [*names, *filter(None, groups)]
    unknown = next((name for name in weights if name not in known), None)
    if unknown is not None:
        choice = f"choose from {', '.join(known)}" if any(known) else "D returns one output, so leave it out"
        raise ConfigError(f"{key}: no discriminator is called {unknown!r}; {choice}")
    factors = {}
    for name in names:
        weight = weights.get(name, weights.get(_group(name), 1.0))
        factors[name] = weight / (groups[_group(name)] if combine == "mean" else 1)
    return factors


def _group(name: str) -> str:
    """Return the name of the list that contains a discriminator."""
    return name.rpartition("/")[0]
