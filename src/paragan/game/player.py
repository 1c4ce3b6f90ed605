"""One network with everything needed to train it. The only place where a network's weights change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Network, Opponent, Strategy, Turn
from paragan.core.types import GeneratorOutput, LossTerms, Side, Update
from paragan.game.ema import Ema
from paragan.game.network import CalledNetwork, Calling
from paragan.game.policy import Policy, Scaler, set_lr, step_if, write_lr
from paragan.layers.update_once import update_once_layers
from paragan.parallel import none


@dataclass(frozen=True)
class ComputedGradients:
    """A turn up to its gradients. norm: of all of them."""

    terms: LossTerms
    norm: Tensor
    turn: Turn

    @property
    def ok(self) -> Tensor:
        """Whether a step is taken of them, 0-dim bool."""
        return self.norm.isfinite()


@dataclass
class Player:
    """A player and, for the other side, the live opponent.

    version counts the updates taken, `updates` (on the device) those that were not skipped, `images` the real images
    of all ranks that its turns covered. damping: of the learning rate, for the next update (`schemes/asynchronous`).
    kept: what the penalties of its turns remember, and what varies D's images (`core.seams.kept`).
    """

    side: Side
    net: nn.Module
    strategy: Strategy = field(default_factory=none.Strategy)
    policy: Policy = Policy()
    calling: Calling = Calling()
    ema: Ema | None = None
    version: int = 0
    images: int = 0
    damping: float | None = None
    state: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        device = self.strategy.device(self.net)
        self.plain_network = CalledNetwork(self.net, self.calling)
        self.training_network = CalledNetwork(self.strategy.training_module(self.net), self.calling)
        self._armed = update_once_layers(self.net)
        self.optimizer = self._optimizer()
        self._weights = list(self.net.parameters())
        self._steps_own = self._steps_its_own_weights()
        self.scaler = Scaler(device) if self.calling.scaled else None
        self.updates = torch.zeros((), dtype=torch.int64, device=device)
        self._unfollowed = 0  # images since the average last followed
        self._left: list[tuple[Tensor, Tensor]] = []  # weights and where `look_ahead` has left them

    def _optimizer(self) -> torch.optim.Optimizer:
        try:
            return self.strategy.optimizer(self.policy, self.net)
        except ConfigError as error:  # a policy from Python does not know its side
            if not str(error).startswith("optimizer"):
                raise
            raise ConfigError(f"{self.side.value}.{error}") from None

    @property
    def updates_per_step(self) -> int:
        return self.policy.updates_per_step

    def network(self) -> Network:
        return self.plain_network

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        """G's images for this turn with their graph, one tensor per part.

        The turn that is given them ends in `update`.
        """
        self._arm()
        _place(turn, self.version, self.plain_network)
        made = [
            GeneratorOutput.of(self.training_network(*feed.fake_inputs))
            for feed in turn.feed.parts(self.policy.micro_batches)
        ]
        if made[0].extra:
            found = ", ".join(made[0].extra)
            raise ConfigError(
                f"scheme: found a generator that makes more than images ({found}); set scheme: synchronous"
            )
        return tuple(m.images for m in made)

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Play the turn, then step or skip. Only this player's state changes."""
        return self.apply_gradients(self.compute_gradients(turn, against))

    def compute_gradients(self, turn: Turn, against: Opponent) -> ComputedGradients:
        """The turn up to its gradients, which wait in the network for a step."""
        rival = against.network()
        _place(turn, self.version, self.plain_network, rival)
        if turn.side is Side.D and turn.feed.fakes is None:
            turn = turn.with_fakes(fakes_for(turn, rival, self.policy.micro_batches), against.version)
        if turn.side is Side.D or turn.feed.fakes is None:  # shared fakes: `rehearse` armed the generator
            self._arm()
        nets: dict[Side, Network] = {turn.side: self.training_network, _other(turn.side): rival}
        scale = None if self.scaler is None else self.scaler.scale
        with rival.frozen():
            terms = self.strategy.forward_backward(turn, nets, self.policy.micro_batches, scale)
        norm = self.strategy.finish(self.net, self.policy.max_norm, scale)
        return ComputedGradients(terms, norm, turn)

    def set_lr_base(self, lr: float) -> None:
        """Another learning rate from now on, before schedule and damping (`coevolution/`)."""
        self.policy = replace(self.policy, lr=lr)
        write_lr(self.optimizer, lr)

    def look_ahead(self, played: ComputedGradients) -> None:
        """Step from here, or skip, to where the next turn is played; the `take` after that steps from here again.

        What the optimiser remembers moves on both times (Gidel et al. 2019, algorithm 4). No update of the game.
        """
        stepped = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        # what penalties have seen from where they were is what they remember of the update
        self._left = [(one, one.detach().clone()) for one in (*stepped, *self.state.values())]
        self._apply(played.ok)

    @torch.no_grad()
    def apply_gradients(self, played: ComputedGradients) -> Update:
        """Step, or skip."""
        self._go_back()
        self._step(played.ok, played.turn.feed.rows.total)
        return self.summarize(played)

    def summarize(self, played: ComputedGradients) -> Update:
        """What a turn tells, whoever steps by it."""
        return Update(self._seen(played.terms, played.norm, played.turn), played.turn.feed.rows, self.version)

    @torch.no_grad()
    def apply_external_gradients(self, gradients: Sequence[Tensor | None], images: int) -> Tensor:
        """Step, or skip, by gradients that were computed elsewhere, over so many images; their norm before clipping."""
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = None if gradient is None else _laid_like(weight, gradient)
        norm = self.strategy.finish(self.net, self.policy.max_norm)
        self._step(norm.isfinite(), images)
        return norm

    def _go_back(self) -> None:
        for weight, before in self._left:
            weight.copy_(before)
        if self._left and hasattr(self.optimizer, "write_back"):  # it steps copies of the weights
            self.optimizer.write_back()
        self._left = []

    def _apply(self, ok: Tensor) -> None:
        set_lr(self.optimizer, self.policy, self.updates, self.damping)
        step_if(ok, self.optimizer)
        if self._steps_own:
            for weight in self._weights:
                weight.grad = None
        else:
            self.optimizer.zero_grad()
            self.net.zero_grad()
        self.strategy.after_step(self.net)

    def _steps_its_own_weights(self) -> bool:
        """Whether those that the optimiser steps are the network's, and stay so: no shards, no copies."""
        kind, own = type(self.optimizer), {id(weight) for weight in self._weights}
        stepped = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        plain = getattr(kind, "zero_grad", None) is torch.optim.Optimizer.zero_grad
        return plain and all(id(weight) in own and not isinstance(weight, DTensor) for weight in stepped)

    def _arm(self) -> None:
        for layer in self._armed:
            layer.update_due = True

    def _step(self, ok: Tensor, batch: int) -> None:
        self._apply(ok)
        self.updates += ok
        self.version += 1
        self.images += batch
        if self.scaler is not None:
            self.scaler.update(ok)
        taken = ok.to(torch.int64)  # where ranks have gone their own ways and meet: whether all of them stepped
        self.strategy.synchronize(self.net, self.optimizer, self.version, [*self._counters(), taken])
        self._unfollowed += batch
        if self.ema is not None and self.is_synchronized:
            self.ema.follow(self.net, taken.bool(), self.images, self._unfollowed, self._followed())
        self._unfollowed *= not self.is_synchronized

    @property
    def is_synchronized(self) -> bool:
        """Whether all ranks hold the same weights now."""
        return self.strategy.is_synchronized(self.net, self.version)

    def _counters(self) -> list[Tensor]:
        return [self.updates] if self.scaler is None else [self.updates, self.scaler.scale, self.scaler.good]

    def _followed(self) -> Sequence[Tensor]:
        """What the average follows: the optimiser's own float32 weights where it has some."""
        return getattr(self.optimizer, "copies", None) or self.strategy.average_shards(self.net)

    def _seen(self, terms: LossTerms, norm: Tensor, turn: Turn) -> Mapping[str, Tensor]:
        """What these rows add to the means over the global batch; whoever reads them sums over ranks."""
        rows = {f"loss/{name}": values for name, values in terms.loss_B.items()} | dict(terms.observations_B)
        sums = torch.stack([values.sum(dtype=torch.float32) for values in rows.values()]) / turn.feed.rows.total
        share = self.strategy.rank_weight(self.net)
        return {**dict(zip(rows, sums.unbind(), strict=True)), "gradient_norm": norm * share}


def _place(turn: Turn, version: int, *nets: Network) -> None:
    """Layers that draw (dropout) find torch's generator where this update puts it: runs repeat, and go on, exactly."""
    if any(getattr(net, "draws", False) for net in nets):
        torch.manual_seed(rng.key(turn.feed.seed, "noise", turn.side.value, version, turn.feed.rows.first))


def _other(side: Side) -> Side:
    return Side.D if side is Side.G else Side.G


@torch.no_grad()
def fakes_for(turn: Turn, generator: Network, parts: int) -> tuple[Tensor, ...]:
    """D's fakes; in one call where G mixes samples: they are one batch to G, however D cuts them."""
    cuts = turn.feed.parts(1 if generator.mixes else parts)
    return tuple(GeneratorOutput.of(generator(*feed.fake_inputs)).images for feed in cuts)


def _laid_like(weight: Tensor, gradient: Tensor) -> Tensor:
    """In the memory order of the weight: fused kernels on a processor walk both as they lie."""
    return gradient if gradient.stride() == weight.stride() else torch.empty_like(weight).copy_(gradient)
