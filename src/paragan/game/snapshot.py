"""A player of other ranks: an earlier state as an opponent, sent with its version, and the placeholder of its slot.

Its spectral norm vectors and statistics are those of the weights, and never advance. A message has the whole state,
or differences from the last message in bfloat16 with error feedback: what one message rounds off is part of the next
difference (Seide et al. 2014, section 3), so that the error does not accumulate.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError
from paragan.core.network_factory import copy_networks
from paragan.core.protocols import Network, Opponent, Turn
from paragan.core.types import Side, Update
from paragan.game.network import CalledNetwork, Calling
from paragan.game.policy import FollowsPolicy, Policy
from paragan.layers.update_once import hold_updates


class Snapshot:
    """An `Opponent` with a separate, frozen network, whose state no forward advances.

    net: a new network of the player's class. is_exact: whether its state is the player's bit for bit.
    """

    def __init__(self, net: nn.Module, calling: Calling | None = None, version: int = 0) -> None:
        self.net = hold_updates(net.requires_grad_(False))
        self.plain_network = CalledNetwork(module=net, calling=calling or Calling())
        self.version = version
        self.is_exact = True
        self._tensors = dict(net.state_dict())

    def network(self) -> Network:
        """Return the frozen network."""
        return self.plain_network

    @property
    def num_bytes(self) -> int:
        """Size of a message with its state."""
        return num_bytes(self._tensors.values())

    def forget(self) -> None:
        """Wait for an exact state of any version: players may have returned to an earlier one."""
        self.version = -1
        self.is_exact = False

    @torch.no_grad()
    def update(self, message: Tensor, version: int, is_difference: bool = False) -> None:
        """Load a message of `StateEncoder`, if it is newer, or exact where the state is not.

        Differences must be those of the next message: they are added to the state here. Raises
        `ConfigError` for a message of another network.
        """
        like = list(self._tensors.values())
        values = unpacked("weights", message, list(map(_as_difference, like)) if is_difference else like)
        if is_difference:
            assert version > self.version, "differences arrive in order"
        elif version < self.version or (version == self.version and self.is_exact):
            return
        for tensor, value in zip(self._tensors.values(), values, strict=True):
            if is_difference and is_rounded(tensor):
                tensor.add_(value.to(tensor.dtype))
            else:
                tensor.copy_(value)
        self.version = version
        self.is_exact = not is_difference


class PredictedOpponent:
    """An `Opponent` with the weights that a snapshot is expected to have one step later (Yadav et al. 2018, section 3).

    In an asynchronous game a snapshot is a step late. The last change of its weights is added once more; buffers,
    such as spectral norm's vectors and running statistics, are the snapshot's. factor: times the change per step that
    is added, above 0. step: versions of a step. Needs the memory of one more network.
    """

    def __init__(self, snapshot: Snapshot, factor: float, step: int = 1) -> None:
        self.snapshot = snapshot
        self._factor = factor
        self._step = step
        self._net = copy_networks(snapshot.net)
        self._network = CalledNetwork(module=self._net, calling=snapshot.plain_network.calling)

    @property
    def version(self) -> int:
        """Version of the snapshot."""
        return self.snapshot.version

    def network(self) -> Network:
        """Return the frozen network of the prediction."""
        return self._network

    def reset(self) -> None:
        """Predict no change until the next state: for equal results with a run that resumes here."""
        self._net.load_state_dict(self.snapshot.net.state_dict())

    @torch.no_grad()
    def update(self, message: Tensor, version: int, is_difference: bool = False) -> None:
        """Load a message into the snapshot (`Snapshot.update`), and predict from its change."""
        before = self.snapshot.version
        self.reset()  # the weights before the change
        self.snapshot.update(message, version, is_difference)
        steps = (self.snapshot.version - before) / self._step
        for name, now in self.snapshot.net.named_buffers():
            self._net.get_buffer(name).copy_(now)
        if steps > 0:
            for predicted, now in zip(self._net.parameters(), self.snapshot.net.parameters(), strict=True):
                predicted.lerp_(now, 1 + self._factor / steps)
        else:  # the exact state of the same version
            self.reset()


class StateEncoder:
    """Messages with the states of a player, one after the other, for `Snapshot.update`.

    sends_differences: in bfloat16, of tensors in float32 or float64; others, such as counts, are sent as they are.
    Requires the memory of one more copy of the state; otherwise every message is exact, and no copy is made.
    """

    def __init__(self, sends_differences: bool = False) -> None:
        self.sends_differences = sends_differences
        self._received: list[Tensor] | None = None  # the state of the other end

    @torch.no_grad()
    def encode(self, weights: Mapping[str, Tensor], is_exact: bool = False) -> tuple[Tensor, bool]:
        """Return the message as bytes, and whether it has differences. The first one is exact."""
        if not self.sends_differences:
            return packed(weights), False
        if is_exact or self._received is None:
            self._received = [value.detach().clone() for value in weights.values()]
            return packed(weights), False
        differences = {}
        for (name, value), received in zip(weights.items(), self._received, strict=True):
            if is_rounded(value):
                differences[name] = (value - received).to(torch.bfloat16)
                received.add_(differences[name].to(received.dtype))
            else:
                differences[name] = value
        return packed(differences), True


def is_rounded(tensor: Tensor) -> bool:
    """Return whether a tensor is smaller in bfloat16, and survives a rounding: float32, float64."""
    return tensor.is_floating_point() and tensor.element_size() > 2


def _as_difference(tensor: Tensor) -> Tensor:
    """Return a tensor of the type and shape of a difference, without memory."""
    dtype = torch.bfloat16 if is_rounded(tensor) else tensor.dtype
    return torch.empty(tensor.shape, dtype=dtype, device="meta")


def packed(weights: Mapping[str, Tensor]) -> Tensor:
    """Return a copy of parameters and buffers (`Strategy.weights`) as bytes, in their order."""
    flat = [value.detach().contiguous().reshape(-1) for value in weights.values()]
    return torch.cat([value.view(torch.uint8) for value in flat])


def unpacked(what: str, data: Tensor, like: Sequence[Tensor]) -> Iterator[Tensor]:
    """Return tensors of these types and shapes from bytes; `ConfigError` if the size is wrong."""
    if len(data) != (expected := num_bytes(like)):
        raise ConfigError(f"{what}: received {len(data)} bytes instead of {expected}: networks differ between ranks")
    parts = torch.split(data, [num_bytes([value]) for value in like])
    pairs = zip(parts, like, strict=True)
    # a copy: `view` needs bytes that begin at a multiple of the size of a value
    return (part.clone().view(value.dtype).view(value.shape) for part, value in pairs)


def num_bytes(values: Iterable[Tensor]) -> int:
    """Return the total size of the tensors in bytes."""
    return sum(value.numel() * value.element_size() for value in values)


@dataclass
class RemotePlayer(FollowsPolicy):
    """A `PlayerSlot` for a player of other ranks. snapshot: newest state; None: only images."""

    side: Side
    policy: Policy
    snapshot: Snapshot | None = None

    @property
    def version(self) -> int:
        """Version of the newest state; 0 without one."""
        return 0 if self.snapshot is None else self.snapshot.version

    def network(self) -> Network:
        """Return the network of the newest state."""
        assert self.snapshot is not None, f"{self.side.value} is on other ranks, and its state is not sent here"
        return self.snapshot.network()

    def update(self, turn: Turn, against: Opponent) -> Update:
        """Raise an error: other ranks run this player's turns."""
        raise AssertionError(f"{self.side.value} is on other ranks, which run its turns")

    def generate_fakes(self, turn: Turn) -> tuple[Tensor, ...]:
        """Raise an error: other ranks generate this player's images."""
        raise AssertionError(f"{self.side.value} is on other ranks, which generate its images")
