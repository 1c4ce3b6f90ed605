"""Factors with which losses of several discriminators are added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from paragan.core.errors import ConfigError
from paragan.core.option_types import Combine


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
