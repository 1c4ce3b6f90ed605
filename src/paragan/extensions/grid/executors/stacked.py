"""Executor that trains all cells of a process as one batched program.

The scheme trains one game whose player slots, data, prior and loss combine those of all cells, row
by row. Adam steps are batched too; players with other optimisers are stepped one by one. Faster if
kernel launches limit the steps: small networks, accelerators. On these a turn can also be recorded
and replayed (`hardware/graphs`), since it depends only on tensors drawn before on the host.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from paragan.core.fakes import generate, with_d_fakes
from paragan.core.phases import turn_phase, work_on
from paragan.core.protocols import Loss, Network, Opponent, Turn
from paragan.core.row_draws import turn_draws
from paragan.core.skipped_state import Copy, copy_state, restore_if_skipped
from paragan.core.types import LossTerms, Side, Update
from paragan.extensions.grid.cell import Cell
from paragan.extensions.grid.executors.inputs import (
    CellAugments,
    CellPriors,
    MixedLoss,
    joint_batches,
    tensors_of,
    with_tensors,
)
from paragan.extensions.grid.executors.stacked_adam import StackedAdam, can_stack
from paragan.extensions.grid.executors.stacked_networks import StackedNetwork, called_stack
from paragan.extensions.grid.population import LossOf
from paragan.game.player import Player
from paragan.hardware.graphs import Graph, RecordedFunction, Work

_LARGE_NUM_WEIGHTS = 65536  # from here on torch's fused Adam is faster on a CPU


class StackedExecutor:
    """`population.Executor` that owns the cells' weights from the first generation on.

    rows: of each cell's batch.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._stack: _StackedCells | None = None

    def __call__(
        self, cells: Sequence[Cell], num_batches: int, loss_of: LossOf, graph: Callable[[], Graph] | None = None
    ) -> dict[int, dict[str, Tensor]]:
        """Train all cells as one program; returns the last scalars by cell. graph: records turns, to replay them."""
        if self._stack is None or not self._stack.is_of(cells):
            self._stack = _StackedCells(cells, self.rows)
        stack = self._stack
        stack.begin(graph)  # clones may have put new buffers into the networks since the last generation
        with stack.batched_optimizers(), work_on("the stack of all cells"):
            for batch in range(num_batches):
                stack.set_losses([loss_of(cell, batch) for cell in cells])
                stack.step()
        return stack.scalars()


class _StackedCells:
    """Cells with stacked weights, as one game."""

    def __init__(self, cells: Sequence[Cell], rows: int) -> None:
        first = cells[0]
        self.cells = list(cells)
        self.batches = joint_batches([cell.batches for cell in cells])
        self.mixed = MixedLoss(len(cells), rows, first.players[Side.G].updates.device)
        seeds = [cell.gan.prior.seed for cell in cells]
        players = {side: [cell.players[side] for cell in cells] for side in Side}
        self.slots = {side: _StackedSlot(side, players[side], rows, seeds) for side in Side}
        self.gan = replace(
            first.gan,
            g=self.slots[Side.G],
            d=self.slots[Side.D],
            prior=CellPriors.of([cell.gan.prior for cell in cells]),
            augment=None if first.gan.augment is None else CellAugments(first.gan.augment, cells),
        )

    def is_of(self, cells: Sequence[Cell]) -> bool:
        """Return whether these are the cells of this stack."""
        return list(map(id, cells)) == list(map(id, self.cells))

    def begin(self, graph: Callable[[], Graph] | None) -> None:
        """Begin a generation without scalars of earlier ones, or of a measurement."""
        for slot in self.slots.values():
            slot.stack.take_over(slot.nets)
            slot.graph = graph
            slot.scalars = {}

    def set_losses(self, numbers: Sequence[int]) -> None:
        """Set the loss of each cell. numbers: by cell, among its losses."""
        for cell, number in zip(self.cells, numbers, strict=True):
            if cell.losses:
                cell.loss = number
                cell.gan.loss = cell.losses[number]
        self.gan.loss = self.mixed.of([cell.gan.loss for cell in self.cells])
        for slot in self.slots.values():
            slot.loss = self.gan.loss

    @contextmanager
    def batched_optimizers(self) -> Iterator[None]:
        """Step the players of each side as one program inside the block, if possible."""
        adams = [slot.adam for slot in self.slots.values() if slot.adam is not None]
        for adam in adams:
            adam.take_over()
        try:
            yield
        finally:
            for adam in adams:
                adam.hand_back()

    def step(self) -> None:
        first = self.cells[0]
        self.gan.clock = replace(first.gan.clock)  # a copy: the step advances it, and then those of all cells follow
        first.scheme.step(self.gan, self.batches)
        for cell in self.cells:
            cell.gan.clock.step = self.gan.clock.step
            cell.gan.clock.images = self.gan.clock.images

    def scalars(self) -> dict[int, dict[str, Tensor]]:
        """Return the last scalars of each cell."""
        scalars: dict[int, dict[str, Tensor]] = {cell.number: {} for cell in self.cells}
        for side, slot in self.slots.items():
            for name, values in slot.scalars.items():
                # cloned, because a recorded turn overwrites it
                for cell, value in zip(self.cells, values.clone(), strict=True):
                    scalars[cell.number][f"{side.value}/{name}"] = value
        return scalars


class _StackedSlot:
    """`core.protocols.PlayerSlot` for the players of one side.

    scalars: last values of each cell, by name. graph: records turns; None: no recording. loss: loss of the turns.
    """

    graph: Callable[[], Graph] | None = None
    loss: Loss | None = None

    def __init__(self, side: Side, players: Sequence[Player], rows: int, seeds: Sequence[int]) -> None:
        self.side = side
        self.players = players
        self.seeds = seeds
        self.nets = [player.net for player in players]
        self.stack = StackedNetwork(self.nets, rows)
        self.plain_network = called_stack(self.stack, players[0].plain_network)
        is_large = self.stack.flat_CP.is_cpu and self.stack.flat_CP.shape[1] >= _LARGE_NUM_WEIGHTS
        is_batched = can_stack(players) and not is_large
        self.adam = StackedAdam(players, self.stack.flat_CP, self.stack.buffers_C) if is_batched else None
        self.scalars: dict[str, Tensor] = {}
        self._recorded: dict[object, RecordedFunction] = {}  # by kind of turn: a recording cannot branch
        self._begun: list[Copy] | None = None  # buffers before a turn that `generate_fakes` has begun

    @property
    def version(self) -> int:
        return self.players[0].version

    @property
    def updates_per_step(self) -> int:
        return self.players[0].updates_per_step

    @property
    def update_probability(self) -> float:
        return self.players[0].update_probability

    def network(self) -> Network:
        return self.plain_network

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        self._begun = self._begin()
        with turn_draws(self.seeds, turn.side.value):
            return (generate(self.plain_network, turn.feed).images,)

    @turn_phase
    def update(self, turn: Turn, against: Opponent) -> Update:
        if not turn.is_due:  # counted by each player, without any work on the device
            updates = [player.update(turn, against) for player in self.players]
            return updates[-1]
        inputs = tensors_of(turn.feed)
        with turn_draws(self.seeds, turn.side.value):
            # weight of the new weights in the averages
            average_weight = None if self.adam is None else self.adam.count(turn.feed.rows.total)
            if average_weight is not None:
                inputs["average"] = average_weight  # a number of the host would be the recording's in every replay
            self.scalars |= self._work(turn, against)(inputs)
        return Update({}, turn.feed.rows, self.version)

    def _work(self, turn: Turn, against: Opponent) -> Work:
        """Return the turn as a function of its input tensors, recorded if possible."""
        # shared fakes are no input that a replay could copy, and have the graph of an earlier forward
        if self.graph is None or self.adam is None or turn.feed.fakes is not None:
            return partial(self._run_turn, turn, against)
        # The first turn and opponent of a kind stand for all: `unrecordable_reason` refuses what else changes, and the
        # schemes of grids play against the other slot, never a snapshot. Names of penalties are unique in a slot.
        kind = (self.loss, *(penalty.name for penalty in turn.penalties))
        if kind not in self._recorded:
            run = partial(self._run_turn, turn, against)
            self._recorded[kind] = RecordedFunction(run, self.graph())
        return self._recorded[kind]

    def _begin(self) -> list[Copy]:
        """Begin an update; returns copies of the buffers before it."""
        self.stack.begin_update()
        return copy_state(self.plain_network.buffers)

    def _run_turn(self, turn: Turn, against: Opponent, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Run all device work of a turn; a skipped cell restores buffers, also those of the opponent that it called."""
        turn = replace(turn, feed=with_tensors(turn.feed, inputs))
        opponent = against.network()
        # G's turn of shared fakes began before their forward, which has changed the buffers
        buffers_before = self._begin() if self._begun is None else self._begun
        self._begun = None
        before = [*buffers_before, *copy_state(opponent.buffers)]
        turn = with_d_fakes(turn, opponent, parts=1)
        nets = {self.side: self.plain_network, turn.opponent: opponent}
        with opponent.frozen():
            terms = self.players[0].strategy.forward_backward(turn, nets, 1)
        norm_C = self._step(turn.feed.rows.total, inputs.get("average"))
        restore_if_skipped(before, norm_C.isfinite())
        self.stack.zero_grad()
        return self._scalars(terms, norm_C)

    def _step(self, images: int, average: Tensor | None) -> Tensor:
        """Step all players as one program, or one by one."""
        if self.adam is not None:
            return self.adam.step(self.stack.gradient(), average)
        norms = []
        for cell, player in enumerate(self.players):
            norms.append(player.apply_external_gradients(self.stack.gradients(cell), images))
        return torch.stack(norms)

    def _scalars(self, terms: LossTerms, norm_C: Tensor) -> dict[str, Tensor]:
        """Return the scalars of each cell: means over its rows, and the norm of its gradient."""
        losses = {f"loss/{name}": loss_B for name, loss_B in terms.loss_B.items()}
        scalars = {}
        for name, values_B in {**losses, **terms.observations_B}.items():
            scalars[name] = values_B.detach().float().unflatten(0, (len(self.players), -1)).mean(1)
        return {**scalars, "gradient_norm": norm_C}
