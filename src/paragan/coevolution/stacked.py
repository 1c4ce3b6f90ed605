"""The executor that trains all cells of a process as one batched program.

The scheme plays one game whose seats, stream, prior and loss are those of all cells together, row by row. Adam's steps
are one program too; those of other optimisers are each player's own. Pays where a step is bound by launches: toy
networks, accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.stack import Stack
from paragan.coevolution.stacked_adam import StackedAdam, fits
from paragan.core.clock import Clock
from paragan.core.seams import Augment, Network, Opponent, Turn
from paragan.core.types import Batch, Rows, Side, Terms, Update
from paragan.game.gan import GAN, Loss
from paragan.game.network import CalledNetwork
from paragan.game.player import Player, fakes_for
from paragan.game.prior import Prior

_LARGE = 65536  # weights of a cell from which a processor steps it faster by torch's fused Adam, which reads them once
_STACKABLE = ("r1",)  # penalties of each sample by itself, that draw nothing


def unfit(cells: Sequence[Cell]) -> str | None:
    """Why these cells cannot be stacked; None: they can."""
    first = cells[0]
    for cell in cells:
        for side, player in cell.players.items():
            like, name = first.players[side], side.value.upper()
            if next(player.net.buffers(), None) is not None:
                return f"{name} has buffers (batch norm, spectral norm)"
            if player.called.draws:
                return f"{name} draws in its own call (dropout)"
            if player.calling.channels_last or player.calling.scaled:
                return f"{name} is called channels-last or with a loss scale"
            if player.policy.parts > 1 or player.strategy.trained(player.net) is not player.net:
                return f"{name} is trained in parts, or by a strategy"
            if player.updates_per_step != like.updates_per_step or player.version != like.version:
                return f"{name}'s cells are not in step"
        if cell.seats:
            return "opponents are drawn anew for every batch"
        for penalty in (*cell.gan.g_penalties, *cell.gan.d_penalties):
            if penalty.name not in _STACKABLE:
                return f"the penalty {penalty.name} draws, or reads whole weights"
    return None


class Executor:
    """Fulfils `coevolution.population.Executor`. It holds the cells' weights from the first generation on.

    rows: of each cell's batch.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._bound: _Bound | None = None

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        bound = self._bound = (
            self._bound if self._bound is not None and self._bound.is_of(cells) else _Bound(cells, self.rows)
        )
        with bound.taken_over():
            for batch in range(num_batches):
                bound.choose([loss_of(cell, batch) for cell in cells])
                bound.step()
        return bound.told()


class _Bound:
    """Cells whose weights are stacked."""

    def __init__(self, cells: Sequence[Cell], rows: int) -> None:
        first = cells[0]
        self.cells, self.rows, self.batches = list(cells), rows, _Streams([cell.batches for cell in cells])
        self.seats = {side: _Seat(side, [cell.players[side] for cell in cells], rows) for side in Side}
        self.gan = GAN(
            self.seats[Side.G],
            self.seats[Side.D],
            first.gan.loss,
            _Priors(first.gan.prior, [cell.gan.prior for cell in cells]),
            first.gan.g_penalties,
            first.gan.d_penalties,
            None if first.gan.augment is None else _Augments(first.gan.augment, cells),
            Clock(first.gan.clock.step, first.gan.clock.images),
        )

    def is_of(self, cells: Sequence[Cell]) -> bool:
        return len(cells) == len(self.cells) and all(a is b for a, b in zip(cells, self.cells, strict=True))

    def choose(self, numbers: Sequence[int]) -> None:
        """Which of its losses each cell trains for."""
        for cell, number in zip(self.cells, numbers, strict=True):
            if cell.losses:
                cell.loss, cell.gan.loss = number, cell.losses[number]
        self.gan.loss = _together([cell.gan.loss for cell in self.cells], self.rows)

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """The players are stepped together inside, where they can be."""
        adams = [seat.adam for seat in self.seats.values() if seat.adam is not None]
        for adam in adams:
            adam.take_over()
        try:
            yield
        finally:
            for adam in adams:
                adam.hand_back()

    def step(self) -> None:
        first = self.cells[0]
        self.gan.clock.step, self.gan.clock.images = first.gan.clock.step, first.gan.clock.images
        first.scheme.step(self.gan, self.batches)
        for cell in self.cells:
            cell.gan.clock.step, cell.gan.clock.images = self.gan.clock.step, self.gan.clock.images

    def told(self) -> dict[int, dict[str, Tensor]]:
        """The last numbers of each cell."""
        found: dict[int, dict[str, Tensor]] = {cell.number: {} for cell in self.cells}
        for side, seat in self.seats.items():
            for name, values in seat.told.items():
                for cell, value in zip(self.cells, values, strict=True):
                    found[cell.number][f"{side.value}/{name}"] = value
        return found


class _Seat:
    """Fulfils `core.seams.Seat` for the players of one side. told: by name, the last number of each cell."""

    def __init__(self, side: Side, players: Sequence[Player], rows: int) -> None:
        self.side, self.players = side, players
        self.stack = Stack([player.net for player in players], rows)
        self.called = CalledNetwork(self.stack, players[0].calling)
        together = fits(players) and not _is_faster_alone(self.stack.flat_CP)
        self.adam = StackedAdam(players, self.stack.flat_CP) if together else None
        self.told: dict[str, Tensor] = {}

    @property
    def version(self) -> int:
        return self.players[0].version

    @property
    def updates_per_step(self) -> int:
        return self.players[0].updates_per_step

    def network(self) -> Network:
        return self.called

    def rehearse(self, turn: Turn) -> tuple[Tensor, ...]:
        return (self.called(*turn.feed.fake_inputs),)

    def update(self, turn: Turn, against: Opponent) -> Update:
        rival = against.network()
        if turn.side is Side.D and turn.feed.fakes is None:
            turn = turn.given(fakes_for(turn, rival, 1), against.version)
        nets = {self.side: self.called, Side.D if self.side is Side.G else Side.G: rival}
        with rival.frozen():
            terms = self.players[0].strategy.forward_backward(turn, nets, 1)
        norm_C = self._step(turn.feed.rows.total)
        self.stack.zero_grad()
        self._tell(terms, norm_C)
        return Update({}, turn.feed.rows, self.version)

    def _step(self, images: int) -> Tensor:
        """All together, or one player after another."""
        if self.adam is not None:
            return self.adam.step(self.stack.gradient(), images)
        each = enumerate(self.players)
        return torch.stack([p.apply_gradients(self.stack.gradients(cell), images) for cell, p in each])

    def _tell(self, terms: Terms, norm_C: Tensor) -> None:
        rows = {f"loss/{name}": values for name, values in terms.loss_B.items()} | dict(terms.seen_B)
        self.told |= {n: v.detach().float().unflatten(0, (len(self.players), -1)).mean(1) for n, v in rows.items()}
        self.told["gradient_norm"] = norm_C


@dataclass
class _Streams:
    """The next batch of every cell, one after the other."""

    streams: Sequence[Iterator[Batch]]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batches = [next(stream) for stream in self.streams]
        rows = replace(batches[0].rows, count=sum(batch.rows.count for batch in batches))
        images, labels = [batch.x_BCHW for batch in batches], [batch.y_B for batch in batches]
        return Batch(rows, _cat(images), _cat(labels))


class _Priors(Prior):
    """What each cell would draw."""

    priors: Sequence[Prior]

    def __init__(self, first: Prior, priors: Sequence[Prior]) -> None:
        super().__init__(first.seed, first.latent, first.num_classes, first.device, first.dtype)
        object.__setattr__(self, "priors", priors)

    def draw(self, stream: str, rows: Rows) -> tuple[Tensor, Tensor | None]:
        each = replace(rows, count=rows.count // len(self.priors))
        drawn = [prior.draw(stream, each) for prior in self.priors]
        return torch.cat([z for z, _ in drawn]), _cat([y for _, y in drawn])


@dataclass(frozen=True)
class _Augments:
    """What each cell's images would be shown as."""

    augment: Augment
    cells: Sequence[Cell]

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor:
        each = replace(rows, count=rows.count // len(self.cells))
        parts = zip(self.cells, x_BCHW.chunk(len(self.cells)), strict=True)
        return torch.cat([self.augment(x, cell.gan.prior.seed, stream, each) for cell, x in parts])


def _is_faster_alone(flat_CP: Tensor) -> bool:
    return flat_CP.device.type == "cpu" and flat_CP.shape[1] >= _LARGE


def _together(losses: Sequence[Loss], rows: int) -> Loss:
    """Every cell's own loss on its own rows, in one go."""
    kinds = list({id(loss): loss for loss in losses}.values())
    if len(kinds) == 1:
        return kinds[0]
    which = torch.tensor([next(i for i, kind in enumerate(kinds) if kind is loss) for loss in losses])
    which_B = which.repeat_interleave(rows)

    def chosen(found: Sequence[Tensor]) -> Tensor:
        mask_B = which_B.to(found[0].device).view(-1, *(1 for _ in found[0].shape[1:]))
        result = found[0]
        for number, values in enumerate(found[1:], start=1):
            result = torch.where(mask_B == number, values, result)
        return result

    def d(real: Tensor, fake: Tensor) -> Tensor:
        return chosen([kind.d(real, fake) for kind in kinds])

    def g(fake: Tensor, real: Tensor | None) -> Tensor:
        return chosen([kind.g(fake, real) for kind in kinds])

    return Loss(d, g, any(kind.g_needs_real for kind in kinds))


def _cat(values: Sequence[Tensor | None]) -> Tensor | None:
    there = [value for value in values if value is not None]
    return torch.cat(there) if there else None
