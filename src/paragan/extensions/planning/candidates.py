"""Candidates for a run on many workers: the config, and what may be faster and is allowed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from paragan import build
from paragan.config import RunConfig, choose, dump, parse_recipe
from paragan.config.sections import ANY
from paragan.core import registry
from paragan.core.capabilities import check_capabilities
from paragan.core.errors import ConfigError
from paragan.core.network_factory import Model
from paragan.core.types import Side
from paragan.extensions.planning.forecast import simulated_game_of
from paragan.extensions.planning.profile import RunProfile
from paragan.extensions.planning.simulation import GameCosts
from paragan.game.gan import GAN
from paragan.game.needs import game_needs

# settings of candidates
_BF16 = {f"{side.value}.reduce": "bf16" for side in Side}
_LOCAL_SGD = {f"{side.value}.strategy": {"name": "local_sgd", "every": 2} for side in Side}
_RARELY = "averaged every 2 updates"


@dataclass(frozen=True)
class PlanSource:
    """A config with what its plan is made from. model: networks from memory."""

    config: RunConfig
    data: build.Data
    profile: RunProfile
    model: Model | None = None


@dataclass(frozen=True)
class Candidate:
    """A way to train. settings: of the config, by dotted key. margin: predicted gain that it needs."""

    name: str
    game: GameCosts
    settings: Mapping[str, Any] = field(default_factory=dict)
    margin: float = 0.0

    def max_samples(self, workers: int) -> int:
        """Return the most samples on a worker: where G and D have separate ranks, fewer share the batch."""
        return -(-self.game.batch // min(map(len, self.game.scheme.assign(workers).values())))


def candidates(source: PlanSource, game: GAN, workers: int, strategy: str | None) -> Iterator[Candidate]:
    """Yield the config, then what may be faster and is allowed. strategy: of both players; None: as configured."""
    sharded = {} if strategy is None else {f"{side.value}.strategy.name": strategy for side in Side}
    yield _candidate(source, "as configured", sharded, 0.0)
    config = source.config
    scheme = build.scheme(config)
    for name, options in scheme.plan_settings(workers).items():
        yield _candidate(source, name, {**sharded, **{f"scheme.{key}": value for key, value in options.items()}}, 0.05)
    strategies = (strategy, config.g.strategy, config.d.strategy)
    # others have another strategy or scheme: not in place of one that fits into memory, or that the config names
    if workers == 1 or scheme.is_concurrent or any(chosen is not None for chosen in strategies):
        return
    for name, settings, margin in _others(config, workers):
        if _allows(source, game, settings):
            yield _candidate(source, name, settings, margin)


def _others(config: RunConfig, workers: int) -> Iterator[tuple[str, dict[str, Any], float]]:
    """Yield name, settings and margin of what may be faster.

    A margin covers the error of a forecast, and more where training differs from one rank on the whole batch.
    """
    yield "bf16 reductions", _BF16, 0.05
    yield f"local SGD, {_RARELY}", _LOCAL_SGD, 0.1
    for name in sorted({*registry.names("schemes")} - {config.scheme.name}):
        scheme = build.scheme(replace(config, scheme=choose("schemes", name)))
        for title, options in scheme.plan_settings(workers).items():
            settings = {"scheme": {"name": name, **options}}
            yield f"{name}, {title}", settings, 0.15
            yield f"{name}, {title}, {_RARELY}", {**settings, **_LOCAL_SGD}, 0.2


def _candidate(source: PlanSource, name: str, settings: Mapping[str, Any], margin: float) -> Candidate:
    config = with_settings(source.config, settings)
    return Candidate(name, simulated_game_of(config, source.profile), settings, margin)


def _allows(source: PlanSource, game: GAN, settings: Mapping[str, Any]) -> bool:
    """Return whether scheme and strategies of these settings have what the game needs."""
    config = with_settings(source.config, settings)
    tensors = source.data.train.tensors
    try:
        build.scheme(config).refuse(game, tensors)
        for options in config.player_options.values():
            check_capabilities(build.strategy_on_ranks(options, torch.device("cpu")).holder, game_needs(game, tensors))
    except ConfigError:
        return False
    return True


def with_settings(config: RunConfig, settings: Mapping[str, Any], source: str = "plan") -> RunConfig:
    """Return the config with settings written over it, by dotted key."""
    return parse_recipe(dump(config), source, ANY, to_words(settings))


def to_words(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as `key=value` words."""
    return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
