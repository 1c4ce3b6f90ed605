"""One network with everything needed to train it: the only place where its weights change."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from paragan.core.capabilities import Capability
from paragan.core.errors import ConfigError
from paragan.core.fakes import generate, with_d_fakes
from paragan.core.layout import local_shard, optimizer_weights
from paragan.core.phases import Phase, phase, turn_phase
from paragan.core.protocols import Network, Opponent, Turn
from paragan.core.skipped_state import Copy, buffer_places, copy_state, restore_if_skipped
from paragan.core.types import LossTerms, Rows, Side, Update
from paragan.game.ema import Ema
from paragan.game.network import CalledNetwork, Calling
from paragan.game.optimizer_calls import Scaler, step_if
from paragan.game.policy import FollowsPolicy, Policy, set_lr
from paragan.game.term_state import TermState
from paragan.game.trained_part import check_trains
from paragan.game.turn_context import ComputedGradients, copy_turn_state, differentiable_attention, seeded_layers
from paragan.layers.update_once import hold_updates, update_once_layers
from paragan.parallel import Strategy, none
from paragan.parallel.base.master_weights import MasterWeights


@dataclass(kw_only=True)
class Player(FollowsPolicy):
    """One network with optimizer, schedule, precision and average; also the other's live opponent.

    version counts all turns, also those in which no term is due because of its interval, `due_turns` those in which
    one is, `updates` (on the device) those whose gradients were finite, `images` the real images of its turns over
    all ranks. state: tensors of the penalties of its turns, and of D's augmentation (`game.gan`). base: names of
    parameters that never change and that checkpoints leave out (`game.trained_part`). structure: of its layers before
    the strategy changes them (`game.structure`); empty if unknown.
    """

    side: Side
    net: nn.Module
    strategy: Strategy = field(default_factory=none.Strategy)
    policy: Policy = Policy()
    calling: Calling = Calling()
    ema: Ema | None = None
    version: int = 0
    images: int = 0
    due_turns: int = 0
    state: TermState = field(default_factory=TermState)
    base: frozenset[str] = frozenset()
    structure: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_trains(self.side.value, self.net)
        device = self.strategy.device(self.net)
        self.plain_network = CalledNetwork(module=self.net, calling=self.calling)
        self.training_network = CalledNetwork(module=self.strategy.training_module(self.net), calling=self.calling)
        self._update_once_layers = update_once_layers(hold_updates(self.net))
        self.optimizer = self._optimizer()
        self._weights = list(self.net.parameters())
        self._buffers = buffer_places(self.net)
        self._with_gradients = {*self._weights, *optimizer_weights(self.optimizer).values()}
        self.scaler = Scaler(device) if self.calling.scaled else None
        self.updates = torch.zeros((), dtype=torch.int64, device=device)
        self._images_since_average = 0
        self._averaged_boxes = [] if self.ema is None else self._boxes_to_average(self.ema.net)
        if self.ema is not None:
            self.ema.share_constants(self.net, self.base)
        # what a later call restores: `apply_gradients` after `look_ahead`, `compute_gradients` after `generate_fakes`
        self._ahead: ComputedGradients | None = None
        self._before_look_ahead: list[Copy] = []  # weights and state of penalties
        self._before_fakes: list[Copy] = []  # buffers

    def _optimizer(self) -> torch.optim.Optimizer:
        try:
            return self.strategy.optimizer(self.policy, self.net)
        except ConfigError as error:  # the policy has no side
            if not str(error).startswith("optimizer"):
                raise
            raise ConfigError(f"{self.side.value}.{error}") from None

    def num_skipped(self) -> int:
        """Count the updates that were skipped for their gradients. Reads from the device."""
        # Another thread may count meanwhile, and its work on a device be behind the host: never too many.
        due_turns = self.due_turns
        if self.updates.device.type != "cpu":
            torch.get_device_module(self.updates.device).synchronize(self.updates.device)
        return max(0, due_turns - int(self.updates))

    def declare_draws(self) -> None:
        """Note that a forward, a loss or a penalty draws random numbers, so that every turn seeds the generators."""
        self.net.draws = True  # type: ignore[assignment]  # as `layers.random` reads it, also of copies
        for called in (self.plain_network, self.training_network):
            called.draws = True

    def network(self) -> Network:
        """Return the live network, as opponent of the other player."""
        return self.plain_network

    @turn_phase
    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        """Return G's images with their graph, one tensor per micro-batch; then call `update`."""
        self._begin_update()
        self._before_fakes = copy_state(self._buffers)
        feeds = turn.feed.parts(self.policy.micro_batches)
        with seeded_layers(turn, self.version, self.plain_network):
            outputs = [generate(self.training_network, feed) for feed in feeds]
        if outputs[0].extra:
            names = ", ".join(outputs[0].extra)
            raise ConfigError(
                "shared fakes do not support a generator that returns more than images "
                f"({names}); use scheme synchronous"
            )
        return tuple(output.images for output in outputs)

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Run the turn, then step or skip; only this player's state changes.

        A turn that is not due changes nothing, but counts if the interval of a penalty does.
        """
        if not turn.is_due:
            if turn.postponed:  # its interval counts turns
                self._advance(torch.ones_like(self.updates))
            return Update({}, turn.feed.rows, self.version)
        computed = self.compute_gradients(turn, against)
        self.apply_gradients(computed)
        return self.summarize(computed)

    @turn_phase
    def compute_gradients(self, turn: Turn, against: Opponent) -> ComputedGradients:
        """Run the turn up to its gradients, which stay in the network for `apply_gradients`."""
        if not turn.is_due:
            raise ConfigError(
                f"{self.side.value}: this turn is not due, so it has no gradients; call Player.update, which skips it, "
                "or use scheme synchronous"
            )
        others = {side: player.network() for side, player in {**turn.players, turn.opponent: against}.items()}
        before = [*copy_turn_state(turn, self._buffers), *self._before_fakes]  # of two copies the last counts
        # torch's batch norm follows the forwards of other turns, too
        of_others = copy_state(place for network in others.values() for place in network.buffers)
        self._before_fakes = []
        with (
            seeded_layers(turn, self.version, self.plain_network, *others.values()),
            differentiable_attention(turn.penalties),
        ):
            turn = with_d_fakes(turn, others[turn.opponent], self.policy.micro_batches)
            # With shared fakes `generate_fakes` has begun the update.
            if turn.side is not Side.G or turn.feed.fakes is None:
                self._begin_update()
            nets = {turn.side: self.training_network, **others}
            scale = None if self.scaler is None else self.scaler.scale
            with ExitStack() as frozen:
                for network in others.values():
                    frozen.enter_context(network.frozen())
                terms = self.strategy.forward_backward(turn, nets, self.policy.micro_batches, scale)
        # In this order: the norm, and so the clipping and the decision to skip, are of the reduced gradients.
        self.strategy.reduce_gradients(self.net, self.version + 1, scale)
        norm = self.strategy.finish(self.net, self.policy.max_norm, scale)
        if self._ahead is not None:  # not finite unless that of the look-ahead is, too
            norm = norm + 0 * self._ahead.norm
        computed = ComputedGradients(terms, norm, turn.feed.rows, before)
        restore_if_skipped([*before, *of_others], computed.ok)
        return computed

    def set_lr_base(self, lr: float) -> None:
        """Set the learning rate before the schedule; groups change by the same factor."""
        self.policy = replace(self.policy, lr=lr)
        set_lr(self.optimizer, self.policy)

    @phase(Phase.OPTIMIZER)
    def look_ahead(self, computed: ComputedGradients) -> None:
        """Step, or skip, for only the next turn; `apply_gradients` restores the weights first.

        Optimizer state advances both times (Gidel et al. 2019, algorithm 4). Not an update: that is skipped unless the
        gradients of both turns are finite.
        """
        self._ahead = computed
        # The state of penalties is restored, too, and a penalty may put a new tensor there.
        held = (optimizer_weights(self.optimizer), self.state)
        self._before_look_ahead = copy_state((tensors, name) for tensors in held for name in tensors)
        set_lr(self.optimizer, self.policy, self.updates)
        step_if(computed.ok, self.optimizer)
        self._release_gradients()

    @phase(Phase.OPTIMIZER)
    @torch.no_grad()
    def apply_gradients(self, computed: ComputedGradients) -> None:
        """Step, or skip if a gradient is not finite, and count the update."""
        # The optimiser steps from where the look-ahead began, by the gradients there.
        if self._ahead is not None:
            for (tensors, name), before in self._before_look_ahead:
                tensors[name].copy_(before)  # type: ignore[union-attr]  # all of them are tensors
            if isinstance(self.optimizer, MasterWeights):
                self.optimizer.write_back()
            restore_if_skipped(self._ahead.before, computed.ok)
        self._ahead = None
        self._before_look_ahead = []
        set_lr(self.optimizer, self.policy, self.updates)
        step_if(computed.ok, self.optimizer)
        self._release_gradients()
        self._count(computed.ok, computed.rows.total)

    def summarize(self, computed: ComputedGradients) -> Update:
        """Return the losses, observations and gradient norm of a turn."""
        terms = computed.terms
        rows = {f"loss/{name}": values for name, values in terms.loss_B.items()} | dict(terms.observations_B)
        sums = torch.stack(list(rows.values())).sum(1, dtype=torch.float32)
        # These rows' shares of the means over the global batch, to be summed over ranks.
        means = dict(zip(rows, (sums / computed.rows.total).unbind(), strict=True))
        norm = computed.norm * self.strategy.rank_weight(self.net)  # equal on all ranks
        return Update({**means, "gradient_norm": norm}, computed.rows, self.version)

    @torch.no_grad()
    def apply_external_gradients(self, gradients: Sequence[Tensor | None], images: int) -> Tensor:
        """Step, or skip, by other ranks' gradients of `images` images, and return their norm."""
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient
            if gradient is not None and gradient.stride() != weight.stride():
                # fused CPU kernels assume the weight's memory layout
                weight.grad = torch.empty_like(weight).copy_(gradient)
        norm = self.strategy.finish(self.net, self.policy.max_norm)
        rows = Rows(step=self.version, first=0, count=images, total=images)
        self.apply_gradients(ComputedGradients(LossTerms({}), norm, rows))
        return norm

    def _release_gradients(self) -> None:
        """Release the gradients after a step; the strategy copies what was stepped into the network."""
        # None, not zero: optimisers leave a weight without gradient alone, but decay or move one with zeros.
        for tensor in self._with_gradients:
            tensor.grad = None
        self.strategy.after_step(self.net)

    def _begin_update(self) -> None:
        # All of D's turns before have ended; the graph of shared fakes begins here and stays until G's turn.
        if self.side is Side.G and self.calling.compiler is not None:
            self.calling.compiler.begin_step()
        for layer in self._update_once_layers:
            layer.update_due = True

    def _count(self, ok: Tensor, batch: int) -> None:
        """Count an update; then adapt the loss scale, synchronize ranks and average weights."""
        self.updates += ok
        self.due_turns += 1  # last, for `num_skipped` in another thread
        self.images += batch
        self._images_since_average += batch
        if self.scaler is not None:
            self.scaler.update(ok)
        self._advance(ok.to(torch.int64))

    def _advance(self, taken: Tensor) -> None:
        """Advance the version, synchronize ranks and average weights. taken: int64, 0 if skipped."""
        # First the version: strategies that average every H updates count this one.
        self.version += 1
        of_scaler = [] if self.scaler is None else [self.scaler.scale, self.scaler.good]
        # local SGD: `taken` becomes the minimum over ranks
        self.strategy.synchronize(self.net, self.optimizer, self.version, [self.updates, *of_scaler, taken])
        # Between two averagings ranks differ, and an average of one rank's weights would be no average of the
        # run's: the images are counted, and the next average has their weight.
        if self.ema is not None and self.is_synchronized and self._images_since_average:
            self.ema.update(self.net, taken.bool(), self.images, self._images_since_average, self._averaged_weights())
        if self.is_synchronized:
            self._images_since_average = 0

    @property
    def is_synchronized(self) -> bool:
        """Whether all ranks have equal weights."""
        return self.strategy.is_synchronized(self.net, self.version)

    @property
    def is_sharded(self) -> bool:
        """Whether a rank holds a part of the network, so that all ranks take part in each forward."""
        return Capability.WHOLE_WEIGHTS not in self.strategy.capabilities

    def _averaged_weights(self) -> Sequence[Tensor]:
        """Return this rank's weights that are averaged: float32 copies if it has some."""
        if isinstance(self.optimizer, MasterWeights):
            return self.optimizer.copies
        weights = map(local_shard, self._weights)
        return [w if box is None else w[box] for w, box in zip(weights, self._averaged_boxes, strict=True)]

    def _boxes_to_average(self, average: nn.Module) -> list[tuple[slice, ...] | None]:
        """Return the part of each local weight that the average here follows; None: all."""
        layout = self.strategy.layout(self.net)
        averaged = self.strategy.layout(average)
        boxes: list[tuple[slice, ...] | None] = []
        # in order, because a wrapper such as DDP prefixes the names
        for (name, _), (of_average, _) in zip(self.net.named_parameters(), average.named_parameters(), strict=True):
            box = averaged[of_average]
            boxes.append(None if box == layout[name] else box.within(layout[name]))
        return boxes
