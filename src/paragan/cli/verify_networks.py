"""What `paragan verify` is asked to try: networks by their dotted path, or a recipe's, with shapes and no data.

Run as a program it is one of the ranks: `python -m paragan.cli.verify_networks ASKED RANK SIZE NUMBER STORE FOLDER`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paragan import build
from paragan.config import RunConfig, choose, load
from paragan.config.config_reader import ANY
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.network_factory import NetworkFactory
from paragan.core.types import Side
from paragan.game.policy import Policy
from paragan.verify.reference_run import VerifiedNetworks, exact_arithmetic

_BARE = ("loss.name=hinge", "scheme.name=synchronous", "penalties=[{name: r1, weight: 1.0, interval: 2}]")
_SHAPE = (3, 32, 32)
_EPS = 1e-3  # of Adam and its like: a gradient that is nothing but rounding must not become a whole step
_CPU = torch.device("cpu")


@dataclass(frozen=True)
class VerifyRequest:
    """The words of the command. shape, classes: None where the recipe's data tells them."""

    target: str
    overrides: tuple[str, ...] = ()
    shape: tuple[int, int, int] | None = None
    classes: int | None = None
    ranks: int = 2
    trust: bool = False

    def text(self) -> str:
        """For a process that is to try the same."""
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> VerifyRequest:
        words: Mapping[str, Any] = json.loads(text)
        shape = None if words["shape"] is None else tuple(words["shape"])
        return cls(words["target"], tuple(words["overrides"]), shape, words["classes"], words["ranks"], words["trust"])


class _Seen:
    """Stands for a data set of which nothing but shape and classes is asked."""

    fingerprint = "none"

    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        self.shape, self.class_names = shape, tuple(map(str, range(classes)))

    def __len__(self) -> int:
        return 1

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        raise AssertionError("the laws draw their images themselves")


class _SeenPairs(_Seen):
    def fetch_pairs(self, indices: Any, places: Any = None, seed: int = 0) -> tuple[Tensor, Tensor]:
        raise AssertionError("the laws draw their images themselves")


def subject(asked: VerifyRequest) -> VerifiedNetworks:
    """Its networks are built in float64, later. `ConfigError` for such as do not fit the shape or the game.

    To be called outside `exact()`: the game is tried once as a run would, in float32.
    """
    config, found = _config(asked)
    game = build.gan(config, found, _CPU, turns=False)  # the laws play them
    return VerifiedNetworks(
        {side: _in_float64(build.maker(config, side, found, _CPU)) for side in Side},
        {Side.G: _policy(config, Side.G), Side.D: _policy(config, Side.D)},
        {Side.G: config.g.ema, Side.D: config.d.ema},
        replace(game, prior=replace(game.prior, dtype=torch.float64)),
        build.scheme(config),
        found.train.shape,
        found.num_classes,
        found.has_pairs,
        batch=max(8, 4 * asked.ranks),
    )


def _config(asked: VerifyRequest) -> tuple[RunConfig, build.Data]:
    """The recipe's, or that of a bare game for a module; players play as on one process, in full precision."""
    is_recipe = asked.target.endswith((".yaml", ".yml")) or asked.target in registry.names("recipes")
    if is_recipe:
        config = load(asked.target, asked.overrides, ANY if asked.trust else None)
    else:
        config = load("digits", [f"model.name={asked.target}", *_BARE, *asked.overrides])
    plain: dict[str, Any] = {
        "precision": "fp32",
        "strategy": None,
        "micro_batches": 1,
        "offload": False,
        "channels_last": False,
    }
    config = replace(config, g=replace(config.g, **plain), d=replace(config.d, **plain))
    if config.scheme.name == "asynchronous":  # without delay it is one of these; with delay nothing repeats exactly
        config = replace(config, scheme=choose("schemes", "shared_fakes"))
    if is_recipe and (asked.shape is None or asked.classes is None):
        try:
            real = build.open_data(config)
        except Exception as error:
            raise ConfigError(f"{error}; or give --shape CxHxW and --classes N: no data is needed then") from None
        shape, classes, pairs = real.train.shape, real.num_classes, real.has_pairs
    else:
        kind = registry.load("models", config.model.name).Generator
        shape, classes, pairs = _SHAPE, 0, bool(getattr(kind, "takes_condition", False))
    classes = classes if asked.classes is None else asked.classes
    seen = (_SeenPairs if pairs else _Seen)(asked.shape or shape, classes)
    return config, build.Data(seen, seen)


def _in_float64(make: NetworkFactory) -> NetworkFactory:
    def construct() -> nn.Module:
        return make.construct().double()

    return replace(make, construct=construct)


def _policy(config: RunConfig, side: Side) -> Policy:
    policy = build.policy(config.g if side is Side.G else config.d)
    eps = policy.arguments.get("eps", 0.0)
    takes = "Adam" in getattr(policy.kind, "__name__", "") and isinstance(eps, float)
    return replace(policy, arguments={**policy.arguments, "eps": max(eps, _EPS)}) if takes else policy


def main(words: list[str]) -> None:
    """One rank of `engine.laws_on_ranks.Ranks`."""
    from paragan.verify.on_ranks import serve

    asked, folder = VerifyRequest.of(words[0]), Path(words[1])
    rank, size, number = map(int, words[2:5])
    tried = subject(asked)
    with exact_arithmetic():
        serve(tried, rank, size, number, folder, Path(words[5]))


if __name__ == "__main__":
    main(sys.argv[1:])
