"""One cell of the upstream-style cellular baseline, and what an iteration of it does."""

from __future__ import annotations

import copy
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from benchmarks import cellular_upstream_timer as ledgers
from benchmarks.cellular_upstream_images import Images, forever, loader
from benchmarks.cellular_upstream_individual import (
    Individual,
    d_loss,
    decode,
    discriminator,
    encode,
    g_loss,
    generator,
    update,
)
from benchmarks.cellular_upstream_score import Scorer, mutated, sampled
from benchmarks.cellular_upstream_timer import Ledger


@dataclass(frozen=True)
class Config:
    """The published settings for MNIST. rows, columns: of the torus. batches: per iteration, at most one pass.

    loss: "mustangs" gives each cell "bce" or "mse" for good, 2 to 1, which is what upstream's choice comes to.
    skip_d: batches without a step of D after each with one. codec: neighbours travel as text, or are copied.
    transposed: cell (r, c) reads the neighbours of (c, r), as upstream's does on square grids.
    """

    rows: int = 2
    columns: int = 2
    batches: int = 600
    batch: int = 100
    latent: int = 64
    hidden: int = 256
    lr: float = 2e-4
    mutation_scale: float = 1e-4
    mutation_probability: float = 0.5
    skip_d: int = 1
    tournament: int = 2
    num_fitness: int = 1000
    num_scored: int = 1000
    mixture_sigma: float = 0.01
    loss: Literal["bce", "mustangs"] = "bce"
    codec: bool = True
    transposed: bool = False
    seed: int = 0


class Cell:
    """g, d: the centre, all that neighbours see. neighbours: numbers of cells, without its own.

    weights: of the mixture of the neighbours' generators, in that order, and its own. distance: of the mixture.
    """

    def __init__(
        self, config: Config, number: int, neighbours: Sequence[int], images: Images, scorer: Scorer, ledger: Ledger
    ) -> None:
        self.config, self.number, self.neighbours = config, number, neighbours
        self._scorer, self._ledger = scorer, ledger
        self._draw = np.random.default_rng((config.seed, number))
        self._pixels = math.prod(images.shape)
        loss = "bce" if config.loss == "bce" else str(self._draw.choice(["bce", "bce", "mse"]))
        self.g = Individual(self._new_g(), config.lr, loss, number)
        self.d = Individual(self._new_d(), config.lr, loss, number)
        self.weights = np.full(len(neighbours) + 1, 1 / (len(neighbours) + 1))
        self.distance = math.inf
        self._loader = loader(images, config.batch, config.seed)
        self._fitness_batches = forever(loader(images, config.batch, config.seed + 1))

    def iterate(self, grid: Sequence[Cell]) -> None:
        """Whatever the neighbours' centres are by now is what it works with."""
        gs, ds = self._gathered(grid)
        _distances(gs), _distances(ds)
        real_FP = self._fitness_samples()
        for g in gs:
            g.fitness = self._g_fitness(g, ds)
        for d in ds:
            d.fitness = self._d_fitness(d, gs, real_FP)
        g, d = self._selected(gs), self._selected(ds)
        self._train(g, d)
        g.fitness, d.fitness = self._g_fitness(g, ds), self._d_fitness(d, gs, real_FP)
        self.g, self.d = min(self.g, g, key=_fitness), min(self.d, d, key=_fitness)  # the old one where they are equal
        self._mix([*gs[:-1], self.g])

    def _gathered(self, grid: Sequence[Cell]) -> tuple[list[Individual], list[Individual]]:
        """Copies of the neighbours' individuals, and its own last."""
        gs = [self._fetched(grid[number].g, self._new_g) for number in self.neighbours]
        ds = [self._fetched(grid[number].d, self._new_d) for number in self.neighbours]
        return [*gs, self.g], [*ds, self.d]

    def _fetched(self, theirs: Individual, make: Callable[[], nn.Module]) -> Individual:
        if not self.config.codec:
            with self._ledger.routine(ledgers.GATHER):
                return copy.deepcopy(theirs)
        with self._ledger.routine(ledgers.SERVE):
            text = encode(theirs)
        with self._ledger.routine(ledgers.GATHER):
            return decode(text, make)

    def _fitness_samples(self) -> Tensor:
        count = self.config.num_fitness
        with self._ledger.routine(ledgers.DATA):
            batches = itertools.islice(self._fitness_batches, math.ceil(count / self.config.batch))
            return torch.cat(list(batches))[:count].flatten(1)

    def _g_fitness(self, g: Individual, ds: Sequence[Individual]) -> float:
        """The mean over opponents. Latents are new, images made again, and gradients prepared, for each."""
        with self._ledger.routine(ledgers.EVALUATE):
            return statistics.fmean(g_loss(g, g.net, d.net, self._z(self.config.num_fitness)).item() for d in ds)

    def _d_fitness(self, d: Individual, gs: Sequence[Individual], real_FP: Tensor) -> float:
        """As of G; the real samples are judged again for each opponent."""
        with self._ledger.routine(ledgers.EVALUATE):
            return statistics.fmean(d_loss(d, d.net, g.net, real_FP, self._z(len(real_FP))).item() for g in gs)

    def _selected(self, population: Sequence[Individual]) -> Individual:
        """A clone of the fitter of a few drawn without replacement."""
        count = min(self.config.tournament, len(population))
        drawn = [population[index] for index in self._draw.choice(len(population), count, replace=False)]
        clone = copy.deepcopy(min(drawn, key=_fitness))
        clone.source, clone.iteration = self.number, clone.iteration + 1
        return clone

    def _train(self, g: Individual, d: Individual) -> None:
        """The two play each other only: selection leaves a population of one."""
        batches = iter(self._loader)
        for number in range(min(self.config.batches, len(self._loader))):
            with self._ledger.routine(ledgers.DATA):
                real_BP = next(batches).flatten(1)
            d.net.requires_grad_(False)  # the cheaper way, by 5 % of an update
            self._step(g, lambda: g_loss(g, g.net, d.net, self._z(self.config.batch)))
            d.net.requires_grad_(True)
            if number % (self.config.skip_d + 1) == 0:
                self._step(d, lambda real_BP=real_BP: d_loss(d, d.net, g.net, real_BP, self._z(len(real_BP))))

    def _step(self, individual: Individual, loss: Callable[[], Tensor]) -> None:
        config = self.config
        with self._ledger.routine(ledgers.MUTATE):
            if self._draw.random() < config.mutation_probability:
                change = config.mutation_scale * self._draw.normal(-config.lr / 10, config.lr)
                individual.lr = max(0.0, individual.lr + float(change))
        with self._ledger.routine(ledgers.UPDATE):
            update(individual, loss)

    def _mix(self, gs: Sequence[Individual]) -> None:
        """One step of a (1 + 1) evolution strategy; the parent is scored again. A cell alone is only scored."""
        with self._ledger.routine(ledgers.MIXTURE):
            self.distance = self._scored(gs, self.weights)
            if len(gs) > 1:
                weights = mutated(self.weights, self.config.mixture_sigma, self._draw)
                distance = self._scored(gs, weights)
                if distance < self.distance:
                    self.weights, self.distance = weights, distance

    def _scored(self, gs: Sequence[Individual], weights: np.ndarray) -> float:
        config = self.config
        fakes_BP = sampled([g.net for g in gs], weights, config.num_scored, config.latent, self._draw)
        return self._scorer(fakes_BP)[0]

    def _z(self, count: int) -> Tensor:
        return torch.randn(count, self.config.latent)

    def _new_g(self) -> nn.Module:
        return generator(self.config.latent, self.config.hidden, self._pixels)

    def _new_d(self) -> nn.Module:
        return discriminator(self._pixels, self.config.hidden)


@torch.no_grad()
def _distances(population: Sequence[Individual]) -> list[float]:
    """L2 between the weights of each pair; upstream logs them, on request or not."""
    weights = [parameters_to_vector(individual.net.parameters()) for individual in population]
    return [torch.dist(a, b).item() for a, b in itertools.combinations(weights, 2)]


def _fitness(individual: Individual) -> float:
    return individual.fitness
