"""What a turn sets while it runs (the seed of layers that draw, the kernels of attention), and what it leaves."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from paragan.core import rng
from paragan.core.capabilities import Capability
from paragan.core.protocols import Network, Penalty, Turn
from paragan.core.row_draws import turn_draws
from paragan.core.skipped_state import Copy, Place, copy_state
from paragan.core.types import LossTerms, Rows


@dataclass(frozen=True)
class ComputedGradients:
    """A turn between backward pass and optimizer step.

    norm: of all gradients. before: state of the player that the turn may have changed.
    """

    terms: LossTerms
    norm: Tensor
    rows: Rows
    before: Sequence[Copy] = ()

    @cached_property
    def ok(self) -> Tensor:
        """Whether they are finite, so that the step is taken; 0-dim bool."""
        return self.norm.isfinite()


# Torch has one generator for all threads: turns of two threads whose networks draw run one after the other.
_DRAWS = threading.RLock()


@contextmanager
def seeded_layers(turn: Turn, version: int, *nets: Network) -> Iterator[None]:
    """Seed the layers that draw: by row, and the global generators by update and rank, for torch's dropout.

    Runs repeat and resume bit-exactly.
    """
    if not any(getattr(net, "draws", False) for net in nets):
        yield
        return
    with _DRAWS:
        rng.seed_globally(rng.key(turn.feed.seed, "noise", turn.side.value, version, turn.feed.rows.first))
        with turn_draws([turn.feed.seed], turn.side.value):
            yield


def copy_turn_state(turn: Turn, buffers: Iterable[Place]) -> list[Copy]:
    """Return copies of what a turn changes of its player, which a skipped update takes back.

    These are the player's buffers and the state of penalties and of a balancer.
    """
    balancers = () if turn.balancer is None else (turn.balancer.state,)
    states = (*balancers, *(penalty.state for penalty in turn.penalties))
    return copy_state([*buffers, *((state, name) for state in states for name in state)])


_KERNELS = threading.Lock()
_num_inside = 0  # of `differentiable_attention`, in all threads: torch's choice of kernels is one for the process
_choice = ExitStack()


@contextmanager
def differentiable_attention(penalties: Iterable[Penalty]) -> Iterator[None]:
    """Have attention computed by a kernel with second derivatives if one of the penalties needs them.

    `scaled_dot_product_attention` chooses a flash kernel otherwise, whose backward has none.
    """
    global _num_inside
    if not any(Capability.DOUBLE_BACKWARD in penalty.needs for penalty in penalties):
        yield
        return
    with _KERNELS:
        if _num_inside == 0:
            _choice.enter_context(sdpa_kernel(SDPBackend.MATH))
        _num_inside += 1
    try:
        yield
    finally:
        with _KERNELS:
            _num_inside -= 1
            if _num_inside == 0:
                _choice.close()
