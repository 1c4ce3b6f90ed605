"""The seams: what a turn is as data, and the protocols that floors keep towards each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from paragan.core.types import Can, LossTerms, Outputs, Rows, Side, TurnInputs, Update
from paragan.core.window import Layout


class Network(Protocol):
    """A module together with how it is called (precision, memory layout)."""

    @property
    def module(self) -> nn.Module: ...

    @property
    def mixes(self) -> bool: ...  # a training-mode call couples the samples of its batch

    def __call__(self, *inputs: Tensor | None) -> Any: ...

    def frozen(self) -> AbstractContextManager[None]: ...  # no gradients for its weights inside


def _as_it_is(x_B: Tensor) -> Tensor:
    return x_B


@dataclass(frozen=True)
class PenaltyContext:
    """What a penalty sees of one part.

    The network in training, its feed and outputs, how to differentiate its input, and how to see the rows of all ranks:
    `whole(x_B)` has those of the global batch, in its order, with their gradient; every rank has to ask equally often.
    """

    network: Network
    feed: TurnInputs
    outputs: Outputs
    input_gradient: Callable[[Tensor, Tensor], Tensor]
    whole: Callable[[Tensor], Tensor] = _as_it_is


class Penalty:
    """Base class of penalties: one extra loss of one player. A subclass sets `name` and defines `__call__`.

    `state` holds tensors that the penalty changes in place from update to update, by name, equal on all ranks; they
    are saved with the player.
    """

    name: str
    side: Side
    """Of the player whose loss it joins; needed by a penalty that a config names."""
    interval: int = 1
    """Due at every n-th update. The penalty multiplies its weight by it, so that the average force stays."""
    needs: frozenset[Can] = frozenset()
    """Abilities that the player's strategy must have."""
    per_sample: bool = False
    """Whether a network that mixes the samples of its batch is refused."""
    needs_real: bool = False
    """Whether G's turn must also run D on real samples. D's turn always does."""
    uses_outputs: bool = True
    """Whether it reads outputs of the turn; False if it only calls the player's network."""
    state: dict[str, Tensor] = {}  # noqa: RUF012  # never written to: a penalty with state assigns a dict of its own

    def __call__(self, context: PenaltyContext) -> Tensor:
        """Return the weighted loss of each sample, (B,)."""
        raise NotImplementedError


class Augment(Protocol):
    """Changes what D is shown, differentiably, by draws of the global batch (`augment/`)."""

    def __call__(self, x_BCHW: Tensor, seed: int, stream: str, rows: Rows) -> Tensor: ...


@runtime_checkable
class Adaptive(Augment, Protocol):
    """An augmentation that follows D's logits on real images; `state` is saved with D."""

    name: str
    state: dict[str, Tensor]

    def observe(self, signs: Tensor, images: int, total: Callable[[Tensor], Tensor]) -> Mapping[str, Tensor]:
        """Adapt to one step; returns numbers to record, by name, the same on all ranks. Collective.

        signs: this rank's share of the mean sign of D's logits on real images. images: real images of the step, over
        all ranks. total: sums over the ranks, in place; every rank must call it equally often.
        """


def adaptive(augment: Augment | None) -> Adaptive | None:
    """Return the same augmentation if it adapts, else None."""
    return augment if isinstance(augment, Adaptive) and augment.state else None


def state_tensors(*owners: Penalty | Adaptive) -> dict[str, Tensor]:
    """Return the state of penalties and augmentations under `OWNER/NAME`."""
    return {f"{owner.name}/{name}": value for owner in owners for name, value in owner.state.items()}


@dataclass(frozen=True)
class Turn:
    """One player's update as data. `chain` is (D,) or (G, D): the networks in order, the last returns a `Verdict`."""

    side: Side
    chain: tuple[Side, ...]
    feed: TurnInputs
    objective: Callable[[Outputs, TurnInputs], LossTerms]
    penalties: tuple[Penalty, ...] = ()
    needs_real: bool = True  # the verdict on real samples enters the objective
    augment: Augment | None = None  # of what D is shown; objectives and penalties see images as they are

    def augmented(self, x: Tensor, kind: str, feed: TurnInputs) -> Tensor:
        """Images as D sees them; kind: `real` or `fake`, which draw apart."""
        if self.augment is None:
            return x
        return self.augment(x, feed.seed, f"augment/{self.side.value}/{kind}", feed.rows)

    def with_fakes(self, fakes: tuple[Tensor, ...], version: int | None) -> Turn:
        """The same turn with images that exist already."""
        return replace(self, feed=replace(self.feed, fakes=fakes, version=version))

    def with_labels(self, y_B: Tensor) -> Turn:
        """The same turn with other labels of the fakes."""
        return replace(self, feed=replace(self.feed, y_B=y_B))

    def with_inputs_of(self, other: Turn, fakes: tuple[Tensor, ...], version: int) -> Turn:
        """The same turn on the other's draws: its labels belong to its images."""
        return replace(self, feed=replace(other.feed, fakes=fakes, version=version))


class Opponent(Protocol):
    """Whom a player plays against: the live other player, a snapshot, a buffer of fakes, a rival far away."""

    @property
    def version(self) -> int: ...

    def network(self) -> Network: ...


class PlayerSlot(Opponent, Protocol):
    """A place at the game: a `Player` here, or the stand-in for one that sits on other ranks."""

    @property
    def updates_per_step(self) -> int: ...

    def update(self, turn: Turn, against: Opponent) -> Update: ...

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]: ...


class Strategy(Protocol):
    """How one player's network is laid out on its mesh, and how a turn runs there. Holds no state of its own."""

    can: frozenset[Can]

    def prepare(self, make: Callable[[], nn.Module], mesh: Any) -> nn.Module:
        """Build, cut, shard: a module with the same forward and plain names. mesh: the ranks, a `World`."""

    def training_module(self, net: nn.Module) -> nn.Module:
        """What is called in the network's own turn."""

    def prepare_average(self, make: Callable[[], nn.Module], mesh: Any) -> nn.Module:
        """A second network that will follow the first."""

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer: ...

    def forward_backward(
        self, turn: Turn, nets: Mapping[Side, Network], parts: int, scale: Tensor | None = None
    ) -> LossTerms:
        """Run the chain and one backward per part; returns the detached terms of all local rows."""

    def input_gradient(self, net: nn.Module, out_B: Tensor, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """d sum(out_B) / dx with its graph, unscaled; the result is differentiable or this raises."""

    def finish(self, net: nn.Module, max_norm: float | None, scale: Tensor | None = None) -> Tensor:
        """Reduce what is left, unscale, clip; returns the global gradient norm before clipping, in float32."""

    def after_step(self, net: nn.Module) -> None:
        """After the optimiser's step here: what the network needs to be called again."""

    def synchronize(self, net: nn.Module, optimizer: Any, version: int, held: Sequence[Tensor]) -> None:
        """After a step, the `version`th: bring ranks together. held: counters that have to be equal where they meet."""

    def is_synchronized(self, net: nn.Module, version: int) -> bool:
        """Whether all ranks hold the same weights after that many updates."""

    def device(self, net: nn.Module) -> torch.device:
        """Where the network computes; its weights may lie elsewhere."""

    def rank_weight(self, net: nn.Module) -> float:
        """This rank's part of a number that all ranks that share the batch have: 1 / ranks."""

    def layout(self, net: nn.Module) -> Layout:
        """Which pieces of a player's tensors lie here."""

    def average_shards(self, net: nn.Module) -> Sequence[Tensor]:
        """The network's weights in the pieces in which its average lies here."""

    def weights(self, net: nn.Module) -> dict[str, Tensor]:
        """All parameters and buffers by their plain names, whole, on every rank that asks."""

    def load(self, net: nn.Module, weights: Mapping[str, Tensor]) -> None: ...


class Source(Protocol):
    """A data set split held as rows: uint8 images fetched by index. Shapes are (channels, height, width)."""

    shape: tuple[int, int, int]
    class_names: tuple[str, ...]  # empty: no labels

    @property
    def fingerprint(self) -> str:
        """Equal for equal data; cheap, never from all pixels."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Any) -> tuple[Tensor, Tensor | None]:
        """indices: int64 array (B,). Returns uint8 x_BCHW and int64 y_B."""


class Paired(Source, Protocol):
    """A split in which every image is to be made from another one, its condition, of the same shape."""

    def fetch_pairs(self, indices: Any, places: Any = None, seed: int = 0) -> tuple[Tensor, Tensor]:
        """indices: int64 array (B,). Returns uint8 x_BCHW, as `fetch` does, and its condition_BCHW.

        places: where the rows stand in the endless stream of batches, int64 (B,); what a training split draws (crop,
        flip) depends on the seed and the place alone. None: nothing is drawn.
        """


def paired(source: Source) -> Paired | None:
    """The same source, if it has pairs."""
    return cast(Paired, source) if hasattr(source, "fetch_pairs") else None


def notices(source: Source) -> tuple[str, ...]:
    """What the source warns of, a line each: images that were left out, folders that are no classes."""
    return tuple(getattr(source, "notices", ()))
