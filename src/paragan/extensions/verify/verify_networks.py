"""Run of `paragan verify`: networks of a dotted path or a recipe, built from shapes, without data.

As a program, it is one rank: `python -m paragan.extensions.verify.verify_networks REQUEST FOLDER RANK SIZE
STORE`.
"""

import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from pydantic import TypeAdapter
from torch import nn

from paragan import build
from paragan.config import RunConfig, choose, default_scheme, read_recipe
from paragan.config.sections import ANY
from paragan.core import registry
from paragan.core.network_factory import NetworkFactory
from paragan.core.outside_code import CodeFolder
from paragan.core.types import Side
from paragan.extensions.verify import laws, on_ranks
from paragan.extensions.verify.law_result import LawResult
from paragan.extensions.verify.reference_run import VerifiedNetworks, exact_arithmetic
from paragan.game.policy import Policy
from paragan.layers.frozen import frozen_networks
from paragan.runs.shape_only_data import condition_channels, data_of_shape, open_data_or_advise

# settings of a game for networks of a dotted path
_BARE = ("loss.name=hinge", "penalties=[{name: r1, weight: 1.0, interval: 2}]")
_SHAPE = (3, 32, 32)  # of an image, unless given
_EPS = 1e-3  # of Adam-like optimizers: rounding errors must not become full steps
_CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """Arguments of the command. shape, classes: those of the recipe's data if None."""

    target: str
    overrides: tuple[str, ...] = ()
    shape: tuple[int, int, int] | None = None
    classes: int | None = None
    ranks: int = 2
    trust: bool = False
    code: CodeFolder | None = None


_REQUESTS = TypeAdapter(VerifyRequest)  # to and from JSON, for other processes


def run_verification(request: VerifyRequest) -> Iterator[LawResult]:
    """Yield the result of each law. Raises `ConfigError` for networks that cannot be built."""
    program = [sys.executable, "-P", "-m", "paragan.extensions.verify.verify_networks"]
    warnings.filterwarnings("ignore", module="torch")  # of strategies that the user did not choose
    networks = verified_networks(request)
    with tempfile.TemporaryDirectory(prefix="paragan-verify-") as folder, exact_arithmetic():
        command = [*program, _REQUESTS.dump_json(request).decode(), folder]
        ranks = on_ranks.RankProcesses(command, request.ranks, Path(folder))
        yield from laws.run_laws(networks, (laws.parts, laws.stopping, laws.one_is_none, ranks))


def verified_networks(request: VerifyRequest) -> VerifiedNetworks:
    """Return the networks of a request, to be built in float64 later.

    Raises `ConfigError` if they do not fit the shape or the game. Call it outside
    `exact_arithmetic()`: the game is tried once in float32, as in a run.
    """
    config, data, strategies = _config(request)
    game = build.gan(config, data, _CPU, turns=False)  # the laws run the turns
    return VerifiedNetworks(
        factories={side: _in_float64(build.network_factory(config, side, data.train, _CPU)) for side in Side},
        policies={Side.G: _policy(config, Side.G), Side.D: _policy(config, Side.D)},
        averages={Side.G: config.g.ema, Side.D: config.d.ema},
        game=replace(game, prior=replace(game.prior, dtype=torch.float64)),
        scheme=build.scheme(config),
        shape=data.train.shape,
        classes=data.num_classes,
        conditioned=data.train.has_pairs,
        batch=max(8, 4 * request.ranks),
        strategies=strategies,
    )


def _config(request: VerifyRequest) -> tuple[RunConfig, build.Data, tuple[str, ...]]:
    """Return the config, the data and the custom strategies that the config names.

    The config is the recipe's, or a minimal one; players run on one process, in full precision.
    """
    is_recipe = request.target.endswith((".yaml", ".yml")) or request.target in registry.names("recipes")
    if is_recipe:
        config = read_recipe(request.target, request.overrides, request.code or (ANY if request.trust else None))
    else:
        bare = (*_BARE, f"scheme.name={default_scheme().name}")
        config = read_recipe("digits", [f"model.name={request.target}", *bare, *request.overrides])
    plain = partial(replace, precision="fp32", strategy=None, micro_batches=1, offload=False, channels_last=False)
    chosen = {options.strategy.name for options in (config.g, config.d) if options.strategy is not None}
    strategies = tuple(sorted(chosen - set(registry.names("parallel"))))
    config = replace(config, g=plain(config.g), d=plain(config.d))
    if (name := build.scheme(config).exact_scheme) is not None:
        config = replace(config, scheme=choose("schemes", name))
    if is_recipe and (request.shape is None or request.classes is None):
        data = open_data_or_advise(config)
        shape = data.train.shape
        classes = data.num_classes
        condition = data.train.condition_channels
    else:
        shape = _SHAPE
        classes = 0
        condition = condition_channels(config, request.shape or shape)
    classes = classes if request.classes is None else request.classes
    data = data_of_shape(config, request.shape or shape, classes, condition, "verify networks of images")
    return config, data, strategies


def _in_float64(make: NetworkFactory) -> NetworkFactory:
    """Return a factory of the same network in float64, with its frozen parts."""

    def construct() -> nn.Module:
        net = make.construct().double()
        for frozen in frozen_networks(net).values():
            frozen.cast(torch.float64)
        return net

    return replace(make, construct=construct)


def _policy(config: RunConfig, side: Side) -> Policy:
    policy = build.policy(config.g if side is Side.G else config.d)
    eps = policy.arguments.get("eps", 0.0)
    if "Adam" not in getattr(policy.kind, "__name__", "") or not isinstance(eps, float):
        return policy
    return replace(policy, arguments={**policy.arguments, "eps": max(eps, _EPS)})


def main(arguments: list[str]) -> None:
    """Run one rank of `verify.on_ranks.RankProcesses`."""
    request_json, folder, rank, size, store = arguments
    request = _REQUESTS.validate_json(request_json)
    on_ranks.verify_rank(lambda: verified_networks(request), int(rank), int(size), Path(folder), Path(store))


if __name__ == "__main__":
    main(sys.argv[1:])
