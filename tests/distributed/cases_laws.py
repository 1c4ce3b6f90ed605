"""The law "ranks are the batch", one strategy at a time, over its whole matrix."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import torch

from paragan.core import registry
from paragan.core.dist import ALONE, World
from paragan.core.types import Side
from paragan.parallel import none
from paragan.schemes import extragradient, shared_fakes, synchronous
from tests.laws.matrix_gan import BATCH, MATRIX, STEPS, Switches, game, make, player, stream
from tests.laws.small_gan import distance, play

UNEVEN = {2: (7, 13), 3: (5, 11, 4), 4: (4, 7, 4, 5)}
SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme(), "extragradient": extragradient.Scheme()}


def strategy(name: str, options: dict[str, Any] | None = None):
    module = registry.load_module("parallel", name)
    return module.Strategy(module.Options(**(options or {})) if hasattr(module, "Options") else None)


@cache
def alone(on: Switches, scheme: str) -> tuple[dict, dict, dict, list]:
    """One process, the whole batch."""
    gan = game(on, *(player(side, on, none.Strategy(), ALONE) for side in (Side.G, Side.D)))
    reports = play(gan, SCHEMES[scheme], stream(on), STEPS)
    start = {side: dict(make(side, on)().state_dict()) for side in Side}
    assert min(distance(dict(seat.net.state_dict()), start[seat.side]) for seat in (gan.g, gan.d)) > 1e-3
    return *(dict(net.state_dict()) for net in (gan.g.net, gan.d.net, gan.g.ema.net)), reports


def differences(
    world: World, names: tuple[str, str], on: Switches, share: tuple[int, int], scheme: str, options: dict
) -> float:
    """The largest difference of any weight, average or number told, from the plain run."""
    seats = (player(side, on, strategy(name, options), world) for side, name in zip(Side, names, strict=True))
    gan = game(on, *seats)
    batches = stream(on, *share)
    reports = [SCHEMES[scheme].step(gan, batches).read(world.sum) for _ in range(STEPS)]
    g, d, average, expected = alone(on, scheme)
    found = [distance(seat.strategy.weights(net), plain) for seat, net, plain in _all(gan, g, d, average)]
    words = max(abs(a[k] - b[k]) / (1 + abs(b[k])) for a, b in zip(reports, expected, strict=True) for k in b)
    return max(*found, 0.0 if words < 1e-5 else words)  # what is told is float32


def _all(gan, g, d, average):
    return ((gan.g, gan.g.net, g), (gan.d, gan.d.net, d), (gan.g, gan.g.ema.net, average))


def matrix(
    world: World,
    g: str,
    d: str,
    uneven: bool,
    numbers: Sequence[int] = range(len(MATRIX)),
    scheme: str = "synchronous",
    options: dict[str, Any] | None = None,
    groups: bool = False,
) -> list[tuple[dict[str, Any], float]]:
    """Sets of switches, by their numbers in the matrix, with their differences."""
    row = sum(UNEVEN[world.size][: world.rank]) if uneven else 0
    share = (row, UNEVEN[world.size][world.rank]) if uneven else world.share(BATCH)
    found = []
    for on in (replace(MATRIX[number], groups=groups) for number in numbers):
        found.append((asdict(on), differences(world, (g, d), on, share, scheme, options or {})))
    return found


def one_is_none(world: World, name: str, numbers: Sequence[int] = range(len(MATRIX))) -> list[str]:
    """Tensors that differ in any bit between one rank under a strategy and the plain run."""
    found = []
    for on in (MATRIX[number] for number in numbers):
        gan = game(on, *(player(side, on, strategy(name), world) for side in Side))
        batches = stream(on)
        reports = [synchronous.step(gan, batches).read(world.sum) for _ in range(STEPS)]
        g, d, average, expected = alone(on, "synchronous")
        for seat, net, plain in _all(gan, g, d, average):
            mine = seat.strategy.weights(net)
            found += [f"{on}: {key}" for key, value in plain.items() if not torch.equal(mine[key], value)]
        found += [f"{on}: told" for a, b in zip(reports, expected, strict=True) if a != b]
    return found
