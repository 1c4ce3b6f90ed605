"""Short training run of two networks in float64, recorded after each step."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor, nn

from paragan.core import registry, rng
from paragan.core.capabilities import Capability
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Penalty
from paragan.core.types import Batch, Rows, Side, present_tensors
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.scheme import Scheme
from paragan.parallel import Strategy

STEPS = 3
NEAR = 1e-9  # tolerance of weights (relative above 1): rounding is far below, a fault far above
NAMES = {Side.G: "Generator", Side.D: "Discriminator"}
Weights = dict[str, Tensor]
Trace = dict[int, Weights]  # weights by number of steps


@dataclass(frozen=True, kw_only=True)
class VerifiedNetworks:
    """The two networks to verify, and the game they train in.

    factories: of the networks with their initial weights. game: loss, penalties and prior;
    its players are replaced. shape: (C, H, W) of one image. classes: number of classes of the data.
    conditioned: G maps images to images. batch: rows of the global batch. strategies: dotted paths
    of strategies to verify besides the built-in ones.
    """

    factories: Mapping[Side, NetworkFactory]
    policies: Mapping[Side, Policy]
    averages: Mapping[Side, EmaOptions | None]
    game: GAN
    scheme: Scheme
    shape: tuple[int, int, int]
    classes: int = 0
    conditioned: bool = False
    batch: int = 8
    strategies: tuple[str, ...] = ()

    @property
    def joining_strategies(self) -> dict[str, Strategy]:
        """Strategies to verify, by name: those in which several ranks train one network."""
        strategies = {name: make_strategy(name) for name in (*registry.names("parallel"), *self.strategies)}
        return {name: strategy for name, strategy in strategies.items() if Capability.RANKS in strategy.capabilities}

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        """Penalties of both players."""
        return (*self.game.g_penalties, *self.game.d_penalties)

    def without(self, need: Capability) -> VerifiedNetworks:
        """Return a copy without the penalties that need this capability."""
        g_penalties = tuple(penalty for penalty in self.game.g_penalties if need not in penalty.needs)
        d_penalties = tuple(penalty for penalty in self.game.d_penalties if need not in penalty.needs)
        return replace(self, game=replace(self.game, g_penalties=g_penalties, d_penalties=d_penalties))

    def without_dropout(self) -> VerifiedNetworks:
        """Return a copy whose layers `nn.Dropout`, and its kind, drop nothing."""
        return replace(self, factories={side: _without_dropout(make) for side, make in self.factories.items()})

    def net(self, side: Side) -> nn.Module:
        """Build a new network with its initial weights, in training mode."""
        return self.factories[side]()

    def real(self, step: int = 0, first: int = 0, count: int | None = None) -> Batch:
        """Return rows of the global batch of step `step`; uniform noise in [-1, 1]."""
        rows = Rows(step=step, first=first, count=self.batch if count is None else count, total=self.batch)

        def images(stream: str) -> Tensor:
            return rng.uniform(seed=0, stream=stream, rows=rows, shape=self.shape).double() * 2 - 1

        labels = rng.integers(seed=0, stream="laws/y", rows=rows, high=self.classes) if self.classes else None
        condition = images("laws/condition") if self.conditioned else None
        return Batch(rows, present_tensors(image=images("laws/x"), label=labels, condition=condition))


def _without_dropout(make: NetworkFactory) -> NetworkFactory:
    def construct() -> nn.Module:
        net = make.construct()
        for module in net.modules():
            if isinstance(module, nn.modules.dropout._DropoutNd):
                module.p = 0.0
        return net

    return replace(make, construct=construct)


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """Use float64 as default dtype and one thread, so that sums have a fixed order."""
    dtype = torch.get_default_dtype()
    threads = torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


def make_strategy(name: str) -> Strategy:
    """Build a strategy with its default options."""
    options = registry.options("parallel", name)
    strategy: Strategy = registry.load_module("parallel", name).Strategy(options())
    return strategy


@dataclass(kw_only=True)
class ReferenceRun:
    """A training run of the networks to verify.

    strategy: of both players. parts: micro-batches by side; default 1. first, count: rows of
    this process.
    """

    subject: VerifiedNetworks
    strategy: str = "none"
    world: World = ALONE
    parts: Mapping[Side, int] = field(default_factory=dict)
    first: int = 0
    count: int | None = None

    def __post_init__(self) -> None:
        players = {side: self._player(side) for side in Side}
        game = self.subject.game
        # a copy, because they can be stateful
        g_penalties, d_penalties, augment = copy.deepcopy((game.g_penalties, game.d_penalties, game.augment))
        self.gan = GAN(  # not `replace`, which would share the clock
            g=players[Side.G],
            d=players[Side.D],
            loss=game.loss,
            prior=game.prior,
            g_penalties=g_penalties,
            d_penalties=d_penalties,
            augment=augment,
            sum_over_ranks=self.world.sum,
            adversarial=game.adversarial.started,  # its weight from the first step, without a delay
            balancer=copy.deepcopy(game.balancer),
        )
        self.players = players

    def _player(self, side: Side) -> Player:
        strategy = make_strategy(self.strategy)
        make = self.subject.factories[side]
        options = self.subject.averages[side]
        net = strategy.prepare(make, self.world)
        average = None if options is None else Ema(strategy.prepare_average(make, self.world), options)
        policy = replace(self.subject.policies[side], micro_batches=self.parts.get(side, 1))
        player = Player(side=side, net=net, strategy=strategy, policy=policy, ema=average)
        tried = self.subject.game.slots[side]
        # the game was tried when it was built, which found out whether a network draws random numbers
        if isinstance(tried, Player) and tried.plain_network.draws:
            player.declare_draws()
        return player

    def steps(self, until: int = STEPS) -> None:
        """Train until the clock shows that step."""
        while (step := self.gan.clock.step) < until:
            first = step * self.gan.d.updates_per_step
            batches = (self.subject.real(number, self.first, self.count) for number in itertools.count(first))
            self.subject.scheme.step(self.gan, batches)

    def weights(self) -> Weights:
        """Return unsharded parameters, buffers and averages of both players. Collective."""
        weights: Weights = {}
        for side, player in self.players.items():
            nets = {NAMES[side]: player.net}
            if player.ema is not None:
                nets[f"average of {NAMES[side]}"] = player.ema.net
            for owner, net in nets.items():
                tensors = player.strategy.weights(net)
                weights |= {f"{owner}.{name}": value.detach().clone() for name, value in tensors.items()}
        return weights

    def trace(self) -> Trace:
        """Return the weights of a whole run: at the start, after one step, at the end."""
        trace = {0: self.weights()}
        for step in (1, STEPS):
            self.steps(step)
            trace[step] = self.weights()
        return trace


@dataclass(frozen=True)
class TraceDifference:
    """Difference of two runs.

    largest: over all tensors and steps. name, step, first: the first tensor that differs by more
    than the tolerance, with its step and difference; name is empty if none does.
    """

    largest: float = 0.0
    name: str = ""
    step: int = 0
    first: float = 0.0

    def __str__(self) -> str:
        when = "at the start" if self.step == 0 else f"after step {self.step}"
        return f"{self.name} differs by {self.first:.0e} {when} (first to differ)"


def compare_traces(trace: Trace, plain: Trace, tolerance: float = NEAR) -> TraceDifference:
    """Compare two runs by `max_difference`; the first tensor that differs is the worst of its step."""
    largest = 0.0
    first = TraceDifference()
    for step, weights in trace.items():
        distances = {name: max_difference(value, plain[step][name]) for name, value in weights.items()}
        name = max(distances, key=distances.__getitem__)
        largest = max(largest, distances[name])
        if not first.name and distances[name] > tolerance:
            first = TraceDifference(0.0, name, step, distances[name])
    return replace(first, largest=largest)


def max_difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference: absolute if |b| <= 1, relative above; 0 for empty tensors.

    Two NaNs are equal; a NaN and a number differ by infinity.
    """
    if a.shape != b.shape:
        return inf
    if torch.equal(a, b) or not a.numel():
        return 0.0
    a = a.to(torch.float64)
    b = b.to(torch.float64)
    is_equal = (a == b) | (a.isnan() & b.isnan())
    differences = ((a - b).abs() / b.abs().clamp(min=1)).nan_to_num(nan=inf, posinf=inf)
    return float(differences.masked_fill(is_equal, 0).max())


def network_inputs(subject: VerifiedNetworks, side: Side, count: int | None = None) -> tuple[Tensor | None, ...]:
    """Return inputs for a single call of a network."""
    feed = subject.game.prior.feed("laws", subject.real())
    inputs = feed.real_inputs if side is Side.D else feed.fake_inputs
    return tuple(None if x is None else x[:count] for x in inputs)
