"""A short game of two networks in float64, written down after each step: what the laws compare."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

import torch
from torch import Tensor, nn

from paragan.core import registry, rng
from paragan.core.dist import ALONE, World
from paragan.core.network_factory import NetworkFactory
from paragan.core.protocols import Penalty, Strategy
from paragan.core.types import Batch, Can, Rows, Side
from paragan.game.ema import Ema
from paragan.game.gan import GAN
from paragan.game.options import EmaOptions
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.scheme import Scheme
from paragan.game.state_buffers import attach_state

STEPS = 3
NEAR = 1e-9  # of a weight in float64, relative above 1: sums of another order stay far below, a fault far above
NAMES = {Side.G: "Generator", Side.D: "Discriminator"}
Weights = dict[str, Tensor]
Trace = dict[int, Weights]  # after that many steps


@dataclass(frozen=True)
class VerifiedNetworks:
    """Two networks and the game they are tried in.

    makes: the networks with their weights of step 0. game: loss, penalties, prior; its seats are taken by others.
    shape: of one image (C, H, W). classes: of the data. conditioned: images are made from images. batch: rows of the
    global batch.
    """

    makes: Mapping[Side, NetworkFactory]
    policies: Mapping[Side, Policy]
    averages: Mapping[Side, EmaOptions | None]
    game: GAN
    scheme: Scheme
    shape: tuple[int, int, int]
    classes: int = 0
    conditioned: bool = False
    batch: int = 8

    @property
    def penalties(self) -> tuple[Penalty, ...]:
        return (*self.game.g_penalties, *self.game.d_penalties)

    def without(self, need: Can) -> VerifiedNetworks:
        """The same without the penalties that need this."""

        def rest(penalties: tuple[Penalty, ...]) -> tuple[Penalty, ...]:
            return tuple(penalty for penalty in penalties if need not in penalty.needs)

        game = replace(self.game, g_penalties=rest(self.game.g_penalties), d_penalties=rest(self.game.d_penalties))
        return replace(self, game=game)

    def net(self, side: Side) -> nn.Module:
        """A fresh one, in training mode."""
        return self.makes[side]()

    def real(self, step: int = 0, first: int = 0, count: int | None = None) -> Batch:
        """Rows of the global batch number `step`: uniform noise."""
        rows = Rows(step, first, self.batch if count is None else count, self.batch)

        def images(stream: str) -> Tensor:
            return rng.uniform(0, stream, rows, self.shape).double() * 2 - 1

        labels = rng.integers(0, "laws/y", rows, self.classes) if self.classes else None
        return Batch(rows, images("laws/x"), labels, images("laws/condition") if self.conditioned else None)


@contextmanager
def exact_arithmetic() -> Iterator[None]:
    """float64 wherever a network makes a tensor of its own, too; one thread, so that sums keep their order."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


def make_strategy(name: str) -> Strategy:
    """With its default options."""
    module = registry.load("parallel", name)
    made: Strategy = module.Strategy(module.Options() if hasattr(module, "Options") else None)
    return made


@dataclass
class ReferenceRun:
    """A game under way. parts: micro-batches of a side, one unless given. first, count: this process's rows."""

    subject: VerifiedNetworks
    name: str = "none"
    world: World = ALONE
    parts: Mapping[Side, int] = field(default_factory=dict)
    first: int = 0
    count: int | None = None

    def __post_init__(self) -> None:
        seats = {side: self._seat(side) for side in Side}
        game = self.subject.game
        own = copy.deepcopy((game.g_penalties, game.d_penalties, game.augment))  # they may remember
        self.gan = GAN(seats[Side.G], seats[Side.D], game.loss, game.prior, *own, total=self.world.sum)
        attach_state(self.gan)
        self.seats = seats

    def _seat(self, side: Side) -> Player:
        placing, make, options = make_strategy(self.name), self.subject.makes[side], self.subject.averages[side]
        net = placing.prepare(make, self.world)
        average = None if options is None else Ema(placing.prepare_average(make, self.world), options)
        policy = replace(self.subject.policies[side], micro_batches=self.parts.get(side, 1))
        return Player(side, net, placing, policy, ema=average)

    def steps(self, until: int = STEPS) -> None:
        """Play on to that step; where it stands is read from the clock."""
        while (step := self.gan.clock.step) < until:
            first = step * self.gan.d.updates_per_step
            batches = (self.subject.real(n, self.first, self.count) for n in range(first, first + 10**6))
            self.subject.scheme.step(self.gan, batches)

    def weights(self) -> Weights:
        """Parameters, buffers and averages of both, whole; every rank has to ask."""
        found: Weights = {}
        for side, seat in self.seats.items():
            nets = {NAMES[side]: seat.net} | ({} if seat.ema is None else {f"average of {NAMES[side]}": seat.ema.net})
            for who, net in nets.items():
                held = seat.strategy.weights(net)
                found |= {f"{who}.{name}": value.detach().clone() for name, value in held.items()}
        return found

    def trace(self) -> Trace:
        """Of a whole game: at the start, after one step, at the end."""
        found = {0: self.weights()}
        for step in (1, STEPS):
            self.steps(step)
            found[step] = self.weights()
        return found


@dataclass(frozen=True)
class TraceDifference:
    """How far two games are apart: the largest difference, and the tensor that left first.

    name is empty where nothing differs by more than what was allowed.
    """

    largest: float = 0.0
    name: str = ""
    step: int = 0
    first: float = 0.0

    def __str__(self) -> str:
        when = "at the start" if self.step == 0 else f"after step {self.step}"
        return f"{self.name} differs by {self.first:.0e} {when} (first to differ)"


def compare_traces(found: Trace, plain: Trace, allowed: float = NEAR) -> TraceDifference:
    """Differences count as they are up to weights of 1, relative above; a NaN is infinitely far from a number."""
    largest, first = 0.0, TraceDifference()
    for step in found:
        distances = {name: max_difference(value, plain[step][name]) for name, value in found[step].items()}
        name = max(distances, key=distances.__getitem__)
        largest = max(largest, distances[name])
        if not first.name and distances[name] > allowed:
            first = TraceDifference(0.0, name, step, distances[name])
    return replace(first, largest=largest)


def max_difference(a: Tensor, b: Tensor) -> float:
    """Largest difference; 0 of equal numbers and of empty tensors, a NaN and a NaN are equal."""
    if a.shape != b.shape:
        return inf
    if torch.equal(a, b) or not a.numel():
        return 0.0
    a, b = a.to(torch.float64), b.to(torch.float64)
    same = (a == b) | (a.isnan() & b.isnan())
    return float(((a - b).abs() / b.abs().clamp(min=1)).nan_to_num(nan=inf, posinf=inf).masked_fill(same, 0).max())


def network_inputs(subject: VerifiedNetworks, side: Side, count: int | None = None) -> tuple[Tensor | None, ...]:
    """What a network is called with, for looking at it alone."""
    real = subject.game.prior.real_batch(subject.real())
    if side is Side.D:
        found: tuple[Tensor | None, ...] = (real.x_BCHW, real.y_B, real.condition)
    else:
        found = (*subject.game.prior.draw("laws", real.rows), real.condition)
    return tuple(None if x is None else x[:count] for x in found)
