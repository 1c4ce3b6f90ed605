"""Some steps of a game on tensors without data: operations, and memory by term at the peak."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from math import lcm
from typing import NamedTuple

import torch
from torch import Tensor

from paragan.core.source import TensorSpec
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.planning.allocations import AllocationRecord, record_allocations
from paragan.extensions.planning.plan import MemoryPlan, PlayerPlan
from paragan.game.gan import GAN
from paragan.game.player import Player
from paragan.game.scheme import Scheme

TERMS = ("weights", "gradients", "optimizer", "ema", "activations", "workspace")
_GIGA = 10**9
_CPU_SHARE = 0.25  # of the tensors: copies inside of convolutions and freed blocks of the heap, as measured
_MAX_BATCH = 1 << 20
_GROWTH = 8  # of the batch from one guess to the next
_PROGRAM_BYTES = 250_000  # of oneDNN for a convolution or product of new shapes, as measured


@dataclass(kw_only=True)
class SimulatedGame:
    """A game to simulate, which is built once, at its first use.

    make: builds it, on tensors without data. tensors: declaration of a sample; images become float32.
    """

    make: Callable[[], GAN]
    scheme: Scheme
    tensors: Mapping[str, TensorSpec]
    device: torch.device
    _record: AllocationRecord = field(default_factory=AllocationRecord, init=False)
    _is_stepped: bool = field(default=False, init=False)

    @cached_property
    def _game(self) -> GAN:
        """The game; first read inside of the record."""
        game = self.make()
        _name_tensors(self._record, game)
        _name_gradients(self._record, game)
        return game

    def peak_bytes(self, batch: int) -> int:
        """Return the bytes of a step at its peak."""
        return self.memory(batch).peak_bytes

    def memory(self, batch: int) -> MemoryPlan:
        """Simulate a step with all penalties due."""
        with record_allocations(self._record) as record:
            game = self._game
            record.programs.clear()  # of other batches
            if not self._is_stepped:
                self._step(batch)  # allocates the state of the optimisers
                _name_tensors(record, game)
                self._is_stepped = True
            start = len(record.events)
            self._step(batch)
            terms = _terms_at_peak(record, start, len(record.events), self.device.type == "cpu")
            return MemoryPlan(device=str(self.device), peak_bytes=sum(terms.values()), terms=terms)

    def players(self, batch: int) -> dict[str, PlayerPlan]:
        """Count what the network of each player holds, and what its turns compute and save."""
        with record_allocations(self._record) as record:
            real = next(self._batches(batch))
            return {side.value: _plan_player(record, self._game, side, real) for side in self._game.slots}

    def _step(self, batch: int) -> None:
        _set_version(self._game, 0)
        self.scheme.step(self._game, self._batches(batch))

    def _batches(self, batch: int) -> Iterator[Batch]:
        for step in count():
            yield Batch(Rows(step=step, first=0, count=batch, total=batch), self._tensors(batch))

    def _tensors(self, batch: int) -> dict[str, Tensor]:
        dtypes = {name: torch.float32 if spec.is_image else spec.dtype for name, spec in self.tensors.items()}
        return {
            name: torch.empty((batch, *spec.shape), dtype=dtypes[name], device=self.device)
            for name, spec in self.tensors.items()
        }


def _players(game: GAN) -> dict[Side, Player]:
    return {side: slot for side, slot in game.slots.items() if isinstance(slot, Player)}


def _set_version(game: GAN, version: int) -> None:
    """Set the number of updates of all players, on which it depends which penalties are due."""
    for player in _players(game).values():
        player.version = version


def _name_tensors(record: AllocationRecord, game: GAN) -> None:
    """Name what the tensors of the players hold, as in `TERMS`."""
    for player in _players(game).values():
        record.name_kind("weights", [*player.net.parameters(), *player.net.buffers()])
        if player.ema is not None:
            record.name_kind("ema", [*player.ema.net.parameters(), *player.ema.net.buffers()])
        record.name_kind("optimizer", getattr(player.optimizer, "copies", ()))
        for state in player.optimizer.state.values():
            record.name_kind("optimizer", [value for value in state.values() if isinstance(value, Tensor)])


def _name_gradients(record: AllocationRecord, game: GAN) -> None:
    """Name each gradient when it is accumulated: afterwards it is freed."""

    def name(weight: Tensor) -> None:
        if weight.grad is not None:
            record.name_kind("gradients", [weight.grad])

    for player in _players(game).values():
        for weight in player.net.parameters():
            if weight.requires_grad:
                weight.register_post_accumulate_grad_hook(name)


def _plan_player(record: AllocationRecord, game: GAN, side: Side, real: Batch) -> PlayerPlan:
    """Return the size of a player's network, and what its turns cost."""
    player = _players(game)[side]
    trainable = sum(weight.numel() for weight in player.net.parameters() if weight.requires_grad)
    total = sum(tensor.numel() for tensor in (*player.net.parameters(), *player.net.buffers()))
    forward = None if side.is_extra else _forward_macs(record, game, side, real) / real.rows.count / _GIGA
    turns = _turn_costs(record, game, side, real)
    return PlayerPlan(
        parameters=trainable,
        buffers=total - trainable,
        forward_gmacs=forward,
        updates=1 if side is Side.G else player.updates_per_step,
        turn_gmacs=sum(turn.macs for turn in turns) / len(turns) / _GIGA,
        saved_by_turn=turns[1 % len(turns)].saved_bytes,  # penalties with an interval are not due in most turns
    )


class _TurnCost(NamedTuple):
    macs: int
    saved_bytes: int


def _turn_costs(record: AllocationRecord, game: GAN, side: Side, real: Batch) -> list[_TurnCost]:
    """Return the cost of each turn in a period of the penalties of a side."""
    penalties = game.penalties[side]
    costs: dict[tuple[bool, ...], _TurnCost] = {}  # by which penalties are due: each kind of turn is run once
    turns = []
    for version in range(lcm(*(penalty.interval for penalty in penalties))):
        due = tuple(version % penalty.interval == 0 for penalty in penalties)
        if due not in costs:
            _set_version(game, version)
            before = record.macs
            with record.saved_for_backward():
                _turn(game, side, real)
            costs[due] = _TurnCost(record.macs - before, sum(record.saved.values()))
        turns.append(costs[due])
    return turns


def _turn(game: GAN, side: Side, real: Batch) -> None:
    """Run the gradients of one turn, if it has any; nothing is stepped."""
    players = _players(game)
    other = Side.D if side is Side.G else Side.G
    turn = game.turn(side, real)
    if not turn.is_due:
        return
    players[side].compute_gradients(turn, against=players[other])
    for weight in players[side].net.parameters():
        weight.grad = None


def _forward_macs(record: AllocationRecord, game: GAN, side: Side, real: Batch) -> float:
    """Return the operations of one call of a player's network on the whole batch."""
    feed = game.prior.feed("plan", real)
    inputs = feed.fake_inputs if side is Side.G else feed.real_inputs
    before = record.macs
    with torch.no_grad():
        _players(game)[side].plain_network(*inputs)
    return float(record.macs - before)


def _terms_at_peak(record: AllocationRecord, start: int, end: int, is_cpu: bool) -> dict[str, int]:
    """Return the memory at the peak of the events from `start` to `end`; all events are replayed."""
    live: Counter[str] = Counter()
    peak = 0
    terms: Counter[str] = Counter()
    for place, event in enumerate(record.events[:end]):
        number = event if event >= 0 else ~event
        size = record.sizes[number]
        live[record.kinds.get(number, "activations")] += size if event >= 0 else -size
        if place >= start and live.total() > peak:
            peak = live.total()
            terms = live.copy()
    if is_cpu:
        terms["workspace"] = round(_CPU_SHARE * peak) + _PROGRAM_BYTES * len(record.programs)
    return {term: terms[term] for term in TERMS}


class _Bound(NamedTuple):
    """A batch, in steps of `find_largest_batch`, and its peak in bytes."""

    number: int
    peak: int


def find_largest_batch(
    peak_bytes: Callable[[int], int], limit_bytes: int, start: int, step: int = 1, state_bytes: int = 0
) -> int:
    """Return the largest multiple of `step` whose peak is within the limit; 0 if none is.

    peak_bytes: of a batch, grows with it. start: a first guess. state_bytes: lower bound of every peak.
    The next guess is on the line through two bounds found so far, so it takes few evaluations.
    """
    former = _Bound(0, state_bytes)  # the bound before `low`
    low = former  # largest that is known to fit
    high: _Bound | None = None  # smallest that is known not to fit
    guess = max(1, start // step)
    while high is None or high.number - low.number > 1:
        tried = _Bound(guess, peak_bytes(guess * step))
        if tried.peak > limit_bytes:
            high = tried
        else:
            former = low
            low = tried
        if low.number * step >= _MAX_BATCH:
            break
        guess = _next_guess(former, low, high, limit_bytes)
    return low.number * step


def _next_guess(former: _Bound, low: _Bound, high: _Bound | None, limit_bytes: int) -> int:
    """Return a batch between the bounds, or above `low`, whose peak would be the limit if it grew by a line."""
    first, second = (former, low) if high is None else (low, high)
    slope_bytes = max(1, second.peak - first.peak)
    guess = low.number + (second.number - first.number) * (limit_bytes - low.peak) // slope_bytes
    most = _GROWTH * low.number if high is None else high.number - 1
    return min(max(low.number + 1, guess), most)
