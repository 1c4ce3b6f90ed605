"""Protocols between packages, the base class of penalties, and the declaration of an adversarial loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from paragan.core import rng
from paragan.core.balancer import Balancer
from paragan.core.capabilities import Capability
from paragan.core.outputs import Outputs, identity
from paragan.core.skipped_state import Place
from paragan.core.types import LossTerms, Rows, Side, TurnInputs, Update
from paragan.core.weight_schedule import WeightSchedule, weight_at


class Network(Protocol):
    """A module together with its call options (precision, memory layout)."""

    @property
    def module(self) -> nn.Module: ...

    @property
    def mixes(self) -> bool: ...  # a training-mode call mixes the samples of its batch (batch norm)

    @property
    def buffers(self) -> Sequence[Place]: ...  # what a training-mode call may change outside of its player's updates

    def __call__(self, *inputs: Tensor | None) -> Any: ...

    def frozen(self) -> AbstractContextManager[None]: ...  # no gradients for its weights inside


@dataclass(frozen=True, kw_only=True)
class PenaltyContext:
    """Inputs of a penalty for one micro-batch.

    network: in training. feed: inputs of the turn. outputs: of its networks. input_gradient(out_B, x): the gradient of
    the summed outputs, with its graph. whole(x_B): the rows of the global batch, in its order, with their gradient;
    collective: every rank must call it equally often. augmented(x, kind): D's inputs for samples of these rows, kind
    `real` or `fake`, by the turn's draws. players: frozen networks of other players (`Penalty.players`), by name.
    """

    network: Network
    feed: TurnInputs
    outputs: Outputs
    input_gradient: Callable[[Tensor, Tensor], Tensor]
    whole: Callable[[Tensor], Tensor] = identity
    augmented: Callable[[Tensor, str], Tensor] = lambda x, kind: x
    players: Mapping[str, Network] = field(default_factory=dict)

    def normal(self, stream: str, like: Tensor) -> Tensor:
        """Draw standard normal numbers for these rows, equal on any number of ranks.

        stream: another name for each draw of a turn. like: gives type, device and shape.
        """
        drawn = rng.normal(self.feed.seed, stream, self.feed.rows, tuple(like.shape[1:]))
        return drawn.to(like, non_blocking=True)

    def uniform(self, stream: str, like: Tensor) -> Tensor:
        """Draw uniform numbers in [0, 1), as `normal`."""
        drawn = rng.uniform(self.feed.seed, stream, self.feed.rows, tuple(like.shape[1:]))
        return drawn.to(like, non_blocking=True)


class Penalty(ABC):
    """Base class of penalties, one extra loss of one player; a subclass sets `name` and defines `__call__`."""

    name: str
    side: Side
    """The player whose loss it joins; needed by a penalty that a config names."""
    weight: float | WeightSchedule = 1.0
    """Weight of the term in the loss."""
    interval: int = 1
    """Due at every n-th update; its weight is multiplied by n, so that the average force stays."""
    needs: frozenset[Capability] = frozenset()
    """Abilities that the player's strategy must have."""
    per_sample: bool = False
    """Whether a network that mixes the samples of its batch is refused."""
    needs_real: bool = False
    """Whether G's turn must also run D on real samples. D's turn always does."""
    needs_pairs: bool = False
    """Whether images must be pairs, because it compares G's image with the target of its input."""
    needs_named_tensors: bool = False
    """Whether it only works where networks receive named tensors, such as `audio` or `both`, not images and labels."""
    needs_images: bool = False
    """Whether it supports images, (C, H, W), alone."""
    uses_outputs: bool = True
    """Whether it reads outputs of the turn; False if it only calls the player's network."""
    uses_discriminator: bool = False
    """Whether, in G's turn, it reads D's outputs, so that D runs before the adversarial loss acts."""
    players: tuple[str, ...] = ()
    """Names of other players whose networks it calls (`PenaltyContext.players`)."""

    @cached_property
    def state(self) -> dict[str, Tensor]:
        """Tensors that it changes, by name, equal on all ranks; saved with the player. Set in `__init__` if it has any.

        A cached property, so that every object without state has a mapping of its own.
        """
        return {}

    @abstractmethod
    def __call__(self, context: PenaltyContext) -> Tensor:
        """Return the weighted loss of each sample, (B,)."""

    @property
    def frozen_sha256(self) -> str | None:
        """Fingerprint of the frozen network that it calls; a resume with another one is refused."""
        return None

    def weight_at(self, rows: Rows) -> float:
        """Return the weight for a batch, times `interval`."""
        return weight_at(self.weight, rows) * self.interval

    def is_off(self, rows: Rows) -> bool:
        """Return whether its schedule is at 0 for a batch."""
        return isinstance(self.weight, WeightSchedule) and not self.weight_at(rows)

    def is_due(self, version: int, rows: Rows) -> bool:
        """Return whether it joins the loss of an update; not while a schedule is at 0."""
        return version % self.interval == 0 and not self.is_off(rows)


class Augment(Protocol):
    """Differentiable transform of D's inputs, by draws for the global batch (`augment/`).

    `extra_channels` is the number of channels that it appends; without it, none. A D that reads them
    has an attribute of this name and number.
    """

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor: ...


@runtime_checkable
class Adaptive(Augment, Protocol):
    """An augmentation that follows D's logits on real images; `state` is saved with D."""

    name: str
    state: dict[str, Tensor]

    def observe(
        self, signs: Tensor | None, images: int, sum_over_ranks: Callable[[Tensor], Tensor]
    ) -> Mapping[str, Tensor]:
        """Adapt to one step and return numbers to record, by name, equal on all ranks. Collective.

        signs: this rank's share of the mean sign of D's logits on real images; None: D was not updated, so that
        nothing adapts. images: real images of the step, over all ranks. sum_over_ranks: in place, and collective.
        """


def adaptive(augment: Augment | None) -> Adaptive | None:
    """Return the augmentation if it adapts, else None."""
    # The state first: `isinstance` of a protocol costs 60 microseconds in Python 3.11, four times per step.
    return augment if getattr(augment, "state", None) and isinstance(augment, Adaptive) else None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One update of one player, as data.

    chain: (D,) or (G, D), the networks in order; the last returns a `DiscriminatorOutput`. (G,) without adversarial
    loss; empty if nothing reads an output, and for an extra player, whose terms call its network. penalties: those
    due now. absent: those of the player that are not due now. needs_real: D also runs on real samples. augment: of D's
    inputs; objectives and penalties receive the images before it. is_due: False for an update that is skipped and
    counted, as while D pauses. balancer: weighs the terms of G's turn. players: others that the terms call.
    """

    side: Side
    chain: tuple[Side, ...]
    feed: TurnInputs
    objective: Callable[[Outputs, TurnInputs], LossTerms]
    penalties: tuple[Penalty, ...] = ()
    needs_real: bool = True
    augment: Augment | None = None
    is_due: bool = True
    balancer: Balancer | None = None
    absent: tuple[Penalty, ...] = ()
    players: Mapping[Side, Opponent] = field(default_factory=dict)

    @property
    def opponent(self) -> Side:
        """The player that it trains against: D in G's turn, G in all others."""
        return Side.D if self.side is Side.G else Side.G

    @property
    def postponed(self) -> tuple[Penalty, ...]:
        """Penalties that only their interval keeps out of this update, not a schedule at 0."""
        return tuple(penalty for penalty in self.absent if not penalty.is_off(self.feed.rows))

    def augmented(self, x: Tensor, kind: str, feed: TurnInputs) -> Tensor:
        """Return D's inputs. kind: `real` or `fake`, which have different draws."""
        if self.augment is None:
            return x
        return self.augment(x, feed.seed, f"augment/{self.side.value}/{kind}", feed.rows)

    def with_fakes(self, fakes: tuple[Tensor, ...]) -> Turn:
        """Return a copy of the turn with these fakes."""
        return replace(self, feed=replace(self.feed, fakes=fakes))

    def with_inputs_of(self, other: Turn, fakes: tuple[Tensor, ...]) -> Turn:
        """Return a copy with the inputs of another turn, to which these fakes belong."""
        return replace(self, feed=replace(other.feed, fakes=fakes))


class Opponent(Protocol):
    """Network to train against: the live other player, a snapshot, or a buffer of fakes."""

    @property
    def version(self) -> int:
        """Number of the player's updates that this state includes."""

    def network(self) -> Network:
        """Return the network in its current state."""


class PlayerSlot(Opponent, Protocol):
    """One player of a game: a `Player` of this process, or a `RemotePlayer` for other ranks."""

    @property
    def updates_per_step(self) -> int:
        """Updates of this player per step."""

    @property
    def update_probability(self) -> float:
        """Probability of an update at each batch."""

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Run the turn, then step the player or skip."""

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        """Return G's images for this turn with their graph, one tensor per micro-batch."""


@dataclass(frozen=True)
class Loss:
    """An adversarial loss: a pair of pure functions, elementwise per sample (`losses/`).

    d(real, fake), g(fake, None): on logits. g_needs_real: g(fake, real). compares: the functions compare
    samples; then they also receive the logits of the whole batch, in the same order.
    """

    d: Callable[..., Tensor]
    g: Callable[..., Tensor]
    g_needs_real: bool = False
    compares: bool = False

    @property
    def needs(self) -> frozenset[Capability]:
        """Abilities that the strategies of both players must have."""
        return frozenset({Capability.COUPLED}) if self.compares else frozenset()
