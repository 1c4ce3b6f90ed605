"""The executor that trains all cells of a process as one batched program.

The scheme plays one game whose seats, stream, prior and loss are those of all cells together, row by row. Adam's steps
are one program too; those of other optimisers are each player's own. Pays where a step is bound by launches: toy
networks, accelerators. There a turn may also be recorded and started as one (`hardware/graphs`): all that it depends
on is tensors, which the host has drawn before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from paragan.coevolution.cell import Cell
from paragan.coevolution.executors.inputs import CellAugments, CellPriors, CellStreams, tensors_of, with_tensors
from paragan.coevolution.executors.mixed_loss import MixedLoss
from paragan.coevolution.executors.stacked_adam import StackedAdam, can_stack
from paragan.coevolution.executors.stacked_networks import StackedNetwork
from paragan.core.clock import Clock
from paragan.core.protocols import Network, Opponent, Penalty, Turn
from paragan.core.types import LossTerms, Side, Update
from paragan.game.gan import GAN, Loss
from paragan.game.network import CalledNetwork
from paragan.game.player import Player, fakes_for
from paragan.hardware.graphs import Graph, RecordedFunction, Work

_LARGE_NUM_WEIGHTS = (
    65536  # weights of a cell from which a processor steps it faster by torch's fused Adam, which reads them once
)
_STACKABLE = ("r1", "r2")  # penalties of each sample by itself, that draw nothing


def unstackable_reason(cells: Sequence[Cell]) -> str | None:
    """Why these cells cannot be stacked; None: they can."""
    first = cells[0]
    if first.scheme.needs_local_players:
        return "the scheme needs the players themselves"
    for cell in cells:
        for side, player in cell.players.items():
            like, name = first.players[side], side.value.upper()
            if next(player.net.buffers(), None) is not None:
                return f"{name} has buffers (batch norm, spectral norm)"
            if player.plain_network.draws:
                return f"{name} draws in its own call (dropout)"
            if player.calling.channels_last or player.calling.scaled:
                return f"{name} is called channels-last or with a loss scale"
            if player.policy.micro_batches > 1 or player.strategy.training_module(player.net) is not player.net:
                return f"{name} is trained in parts, or by a strategy"
            if player.updates_per_step != like.updates_per_step or player.version != like.version:
                return f"{name}'s cells are not in step"
        if cell.seats:
            return "opponents are drawn anew for every batch"
        if any(loss.compares for loss in (cell.gan.loss, *cell.losses)):
            return "a loss compares the samples of a batch, and a stack has those of all cells"
        for penalty in (*cell.gan.g_penalties, *cell.gan.d_penalties):
            if penalty.name not in _STACKABLE:
                return f"the penalty {penalty.name} draws, or reads whole weights"
    return None


def unrecordable_reason(cells: Sequence[Cell]) -> str | None:
    """Why the turns of these cells cannot be recorded, on a device that records; None: they can."""
    for side in Side:
        players = [cell.players[side] for cell in cells]
        if not can_stack(players):
            return f"{side.value.upper()}'s players are not all stepped by the same plain Adam"
    if any(_has_schedule(penalty) for penalty in (*cells[0].gan.g_penalties, *cells[0].gan.d_penalties)):
        return "a penalty's weight changes from step to step"
    if cells[0].gan.augment is not None:
        return "what D is shown is varied by draws of every step"
    if cells[0].scheme.shares_fakes:
        return "the scheme shows G's images to D before G's own turn"
    return None


def _has_schedule(penalty: Penalty) -> bool:
    """By a number of the host, which a recording would keep as it was."""
    return getattr(getattr(penalty, "options", None), "final", None) is not None


class StackedExecutor:
    """Fulfils `coevolution.population.Executor`. It holds the cells' weights from the first generation on.

    rows: of each cell's batch.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._bound: _StackedCells | None = None

    def train(
        self,
        cells: Sequence[Cell],
        num_batches: int,
        loss_of: Callable[[Cell, int], int],
        graph: Callable[[], Graph] | None = None,
    ) -> dict[int, dict[str, Tensor]]:
        """graph: records the turns."""
        bound = self._bound = (
            self._bound if self._bound is not None and self._bound.is_of(cells) else _StackedCells(cells, self.rows)
        )
        bound.record_with(graph)
        with bound.taken_over():
            for batch in range(num_batches):
                bound.choose([loss_of(cell, batch) for cell in cells])
                bound.step()
        return bound.told()


@dataclass(frozen=True)
class RecordedSteps:
    """Fulfils `coevolution.population.Executor`: that executor, on whose stack turns are recorded by `graph`."""

    executor: StackedExecutor
    graph: Callable[[], Graph]

    def train(
        self, cells: Sequence[Cell], num_batches: int, loss_of: Callable[[Cell, int], int]
    ) -> dict[int, dict[str, Tensor]]:
        return self.executor.train(cells, num_batches, loss_of, self.graph)


class _StackedCells:
    """Cells whose weights are stacked."""

    def __init__(self, cells: Sequence[Cell], rows: int) -> None:
        first = cells[0]
        self.cells, self.batches = list(cells), CellStreams([cell.batches for cell in cells])
        self.mixed = MixedLoss(len(cells), rows, first.players[Side.G].updates.device)
        self.seats = {side: _StackedSlot(side, [cell.players[side] for cell in cells], rows) for side in Side}
        self.gan = GAN(
            self.seats[Side.G],
            self.seats[Side.D],
            first.gan.loss,
            CellPriors(first.gan.prior, [cell.gan.prior for cell in cells]),
            first.gan.g_penalties,
            first.gan.d_penalties,
            None if first.gan.augment is None else CellAugments(first.gan.augment, cells),
            Clock(first.gan.clock.step, first.gan.clock.images),
        )

    def is_of(self, cells: Sequence[Cell]) -> bool:
        return len(cells) == len(self.cells) and all(a is b for a, b in zip(cells, self.cells, strict=True))

    def record_with(self, graph: Callable[[], Graph] | None) -> None:
        for seat in self.seats.values():
            seat.graph = graph

    def choose(self, numbers: Sequence[int]) -> None:
        """Which of its losses each cell trains for."""
        for cell, number in zip(self.cells, numbers, strict=True):
            if cell.losses:
                cell.loss, cell.gan.loss = number, cell.losses[number]
        self.gan.loss = self.mixed.of([cell.gan.loss for cell in self.cells])
        for seat in self.seats.values():
            seat.loss = self.gan.loss

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
                for cell, value in zip(self.cells, values.clone(), strict=True):  # a recorded turn writes there again
                    found[cell.number][f"{side.value}/{name}"] = value
        return found


class _StackedSlot:
    """Fulfils `core.seams.Seat` for the players of one side. told: by name, the last number of each cell.

    graph: records turns; None: nothing is recorded. loss: what they are for.
    """

    graph: Callable[[], Graph] | None = None
    loss: Loss | None = None

    def __init__(self, side: Side, players: Sequence[Player], rows: int) -> None:
        self.side, self.players = side, players
        self.stack = StackedNetwork([player.net for player in players], rows)
        self.plain_network = CalledNetwork(self.stack, players[0].calling)
        together = can_stack(players) and not _is_faster_unstacked(self.stack.flat_CP)
        self.adam = StackedAdam(players, self.stack.flat_CP) if together else None
        self.told: dict[str, Tensor] = {}
        self._recorded: dict[object, RecordedFunction] = {}

    @property
    def version(self) -> int:
        return self.players[0].version

    @property
    def updates_per_step(self) -> int:
        return self.players[0].updates_per_step

    def network(self) -> Network:
        return self.plain_network

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        return (self.plain_network(*turn.feed.fake_inputs),)

    def update(self, turn: Turn, against: Opponent) -> Update:
        given = tensors_of(turn.feed)
        if self.adam is not None and (weight := self.adam.count(turn.feed.rows.total)) is not None:
            given["average"] = weight
        self.told |= self._work(turn, against)(given)
        return Update({}, turn.feed.rows, self.version)

    def _work(self, turn: Turn, against: Opponent) -> Work:
        """The turn as a function of what it is fed; recorded where it can be."""
        if self.graph is None or self.adam is None or turn.feed.fakes is not None:
            return partial(self._play, turn, against)
        kind = (self.loss, *map(id, turn.penalties))
        if kind not in self._recorded:
            self._recorded[kind] = RecordedFunction(partial(self._play, turn, against), self.graph())
        return self._recorded[kind]

    def _play(self, turn: Turn, against: Opponent, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """All that the device does in a turn."""
        turn, rival = replace(turn, feed=with_tensors(turn.feed, given)), against.network()
        if turn.side is Side.D and turn.feed.fakes is None:
            turn = turn.with_fakes(fakes_for(turn, rival, 1), against.version)
        nets = {self.side: self.plain_network, Side.D if self.side is Side.G else Side.G: rival}
        with rival.frozen():
            terms = self.players[0].strategy.forward_backward(turn, nets, 1)
        norm_C = self._step(turn.feed.rows.total, given.get("average"))
        self.stack.zero_grad()
        return self._seen(terms, norm_C)

    def _step(self, images: int, average: Tensor | None) -> Tensor:
        """All together, or one player after another."""
        if self.adam is not None:
            return self.adam.step(self.stack.gradient(), average)
        each = enumerate(self.players)
        return torch.stack([p.apply_external_gradients(self.stack.gradients(cell), images) for cell, p in each])

    def _seen(self, terms: LossTerms, norm_C: Tensor) -> dict[str, Tensor]:
        rows = {f"loss/{name}": values for name, values in terms.loss_B.items()} | dict(terms.observations_B)
        found = {n: v.detach().float().unflatten(0, (len(self.players), -1)).mean(1) for n, v in rows.items()}
        return found | {"gradient_norm": norm_C}


def _is_faster_unstacked(flat_CP: Tensor) -> bool:
    return flat_CP.device.type == "cpu" and flat_CP.shape[1] >= _LARGE_NUM_WEIGHTS
