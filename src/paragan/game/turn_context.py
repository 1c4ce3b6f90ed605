"""What a turn sets for its process while it runs: the seed of layers that draw, and the kernels of attention."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from torch.nn.attention import SDPBackend, sdpa_kernel

from paragan.core import rng
from paragan.core.capabilities import Capability
from paragan.core.protocols import Network, Penalty, Turn
from paragan.core.row_draws import turn_draws
from paragan.core.skipped_state import Copy, Place, copy_state

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


def copy_turn_state(turn: Turn, buffers: Iterable[Place], opponents: Iterable[Network]) -> list[Copy]:
    """Return copies of what the forwards of a turn change, which a skipped update takes back.

    These are the player's buffers, the state of penalties and of a balancer, and buffers of opponents: torch's batch
    norm follows the forwards of other turns, too.
    """
    of_opponents = (place for net in opponents for place in net.buffers)
    balancers = () if turn.balancer is None else (turn.balancer.state,)
    states = (*balancers, *(penalty.state for penalty in turn.penalties))
    return copy_state([*buffers, *of_opponents, *((state, name) for state in states for name in state)])


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
