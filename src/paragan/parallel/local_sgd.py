"""Local SGD: ranks update independently and average their weights every H updates (Stich 2019).

`every: 2` is ParaGAN's synchronisation "every other step": half the bytes of `ddp`. Each rank takes the mean over its
local rows; batch norm uses only these, unless `norm_ranks` is set. At an averaging weights and statistics become
their means, the vectors of spectral norm those of rank 0 (a mean of unit vectors is none), and the averaged generator
follows. The optimiser state stays local to each rank.

`lr_rule: sqrt` is for optimisers that divide a gradient by its size, which noise makes sqrt(K) times
as large on the rows of one of K ranks as on the batch: the square root rule of Malladi et al. 2022.

`synchronize: gradients` is the other reading of "every other step", that of ParaGAN's poster: every
H-th update uses the mean gradient of all ranks, the others the gradient of this rank's rows. Ranks
then differ by all local updates since the start, so their weights are averaged, too, every 64
updates, or the next multiple of `every`: that is when they are equal, and when checkpoints and scores
are possible. It sends as many bytes as averaging weights every H updates, and the averagings in addition.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paragan.core.capabilities import ALL, Capability
from paragan.core.dist import Collective, RankExchange, World
from paragan.core.errors import ConfigError
from paragan.core.layout import StoredTensors, optimizer_weights
from paragan.core.option_types import Count
from paragan.core.phases import Phase, phase
from paragan.core.protocols import Turn
from paragan.layers.cross_rank import convert
from paragan.layers.modes import frozen_modules
from paragan.layers.spectral_norm import SpectralNorm
from paragan.parallel.base import strategy
from paragan.parallel.base.master_weights import MasterWeights
from paragan.parallel.base.placement import Placement, attach_placement, placement_of
from paragan.parallel.base.reduction import Reduction
from paragan.parallel.base.strategy import NO_MEMORY_OPTIONS, MemoryOptions

_AVERAGE_EVERY = 64  # updates, at least, between two averagings where gradients are synchronised


@dataclass(frozen=True)
class Options:
    """Local SGD: interval and scope of the averaging."""

    every: Count = 2
    """Updates between two synchronisations of the ranks."""
    synchronize: Literal["weights", "gradients"] = "weights"
    """What is averaged over ranks then: the weights, or only the gradients of that update.

    With `gradients`, weights are averaged at the first multiple of `every` from 64 updates on.
    """
    lr_rule: Literal["none", "sqrt"] = "none"
    """Factor of the learning rates. sqrt: the square root of the number of ranks, for Adam."""


class Strategy(strategy.Strategy):
    """Local SGD: strategy that averages weights over ranks every `every` updates."""

    capabilities = ALL - {Capability.COUPLED, Capability.BALANCER}
    exemption = "ranks differ between two averagings by design"
    options: Options

    def __init__(self, options: Options = Options(), memory: MemoryOptions = NO_MEMORY_OPTIONS) -> None:
        super().__init__(options, memory)

    @property
    def sync_period(self) -> int:
        every = self.options.every
        if self.options.synchronize == "weights":
            return every
        return -(-_AVERAGE_EVERY // every) * every

    @property
    def spans_norms(self) -> bool:
        return (self.memory.norm_ranks or 1) > 1

    def exchanges(self, weight_bytes: int, is_opponent: bool = False) -> tuple[RankExchange, ...]:
        if is_opponent:
            return ()
        num_bytes = weight_bytes // 2 if self.memory.bf16_reduce else weight_bytes
        # weights, buffers and counters
        averaged = RankExchange(kind=Collective.ALL_REDUCE, num_bytes=num_bytes, every=self.sync_period, count=3)
        if self.options.synchronize == "weights":
            return (averaged,)
        return (RankExchange(kind=Collective.ALL_REDUCE, num_bytes=num_bytes, every=self.options.every), averaged)

    def prepare(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        net = self.apply_memory_options(make())
        if self.memory.norm_ranks is not None and self.memory.norm_ranks > 1:
            convert(net, world, self.memory.norm_ranks)
        return attach_placement(net, Placement(world=world, training_module=net))

    def prepare_average(self, make: Callable[[], nn.Module], world: World) -> nn.Module:
        net = make()
        return attach_placement(net, Placement(world=world, training_module=net))

    def lr_factor(self, world: World) -> float:
        return world.size**0.5 if self.options.lr_rule == "sqrt" else 1.0

    def optimizer(self, policy: Any, net: nn.Module) -> torch.optim.Optimizer:
        optimizer = super().optimizer(policy, net)
        placement = placement_of(net)
        trained = {name for name, weight in net.named_parameters() if weight.requires_grad}
        # A mean of equal numbers may differ from them, so frozen weights are not averaged.
        placement.optimized_weights = [w for name, w in optimizer_weights(optimizer).items() if name in trained]
        placement.constants = [weight for weight in net.parameters() if not weight.requires_grad]
        return optimizer

    def reduction(self, turn: Turn, net: nn.Module) -> Reduction:
        placement = placement_of(net)
        if self.memory.bf16_reduce and not placement.anchor:
            placement.anchor = [tensor.detach().clone() for tensor in placement.optimized_weights]
        return Reduction(ranks=placement.world.size)

    @torch.no_grad()
    def reduce_gradients(self, net: nn.Module, version: int, scale: Tensor | None = None) -> None:
        world = placement_of(net).world
        is_due = self.options.synchronize == "gradients" and version % self.options.every == 0
        if world.size == 1 or not is_due:
            return
        grads = [weight.grad for weight in net.parameters() if weight.grad is not None]
        if scale is not None:  # the scales of ranks may differ
            torch._foreach_mul_(grads, 1 / scale)
        if self.memory.bf16_reduce:
            rounded = [grad.to(torch.bfloat16) for grad in grads]
            _mean(rounded, world, "parameters")
            torch._foreach_copy_(grads, rounded)
        else:
            _mean(grads, world, "parameters")
        if scale is not None:
            torch._foreach_mul_(grads, scale)

    def is_synchronized(self, net: nn.Module, version: int) -> bool:
        return placement_of(net).world.size == 1 or version % self.sync_period == 0

    @torch.no_grad()
    def synchronize(self, net: nn.Module, optimizer: Any, version: int, counters: Sequence[Tensor]) -> None:
        placement = placement_of(net)
        world = placement.world
        if world.size == 1 or not self.is_synchronized(net, version):
            return
        if any(weight.requires_grad for weight in placement.constants):
            raise ConfigError(
                "local_sgd: a weight was frozen when the player was built, and is not any more; build the player "
                "again, or freeze it later"
            )
        weights = [tensor.detach() for tensor in placement.optimized_weights]
        if placement.anchor:
            # Changes since the last averaging are small, so that bfloat16 rounds little of the weights
            # away; all ranks add the same mean to the same anchor, and are bit-equal afterwards.
            moved = [(w - a).to(torch.bfloat16) for w, a in zip(weights, placement.anchor, strict=True)]
            _mean(moved, world, "parameters")
            steps = [m.to(a.dtype) for m, a in zip(moved, placement.anchor, strict=True)]
            torch._foreach_add_(placement.anchor, steps)
            torch._foreach_copy_(weights, placement.anchor)
        else:
            _mean(weights, world, "parameters")
        if isinstance(optimizer, MasterWeights):
            optimizer.write_back()
        _average_buffers(net, world)
        _minimum(counters, world)

    def optimizer_replica(self, net: nn.Module) -> tuple[int, int]:
        world = placement_of(net).world
        return world.rank, world.size

    def load(self, net: nn.Module, weights: StoredTensors) -> None:
        super().load(net, weights)
        placement_of(net).anchor.clear()  # the next anchor is the loaded state


def _average_buffers(net: nn.Module, world: World) -> None:
    frozen = frozen_modules(net)
    modules = [module for module in net.modules() if module not in frozen]
    vectors = [buffer for norm in modules if isinstance(norm, SpectralNorm) for buffer in norm.buffers()]
    vector_ids = {id(vector) for vector in vectors}
    buffers = [buffer for module in modules for buffer in module.buffers(recurse=False)]
    _mean([b for b in buffers if b.is_floating_point() and id(b) not in vector_ids], world, "norm")
    # A mean of unit vectors is none, so spectral norm's are those of one rank.
    _replace(vectors, lambda flat: world.broadcast(flat, "norm"))


@phase(Phase.COMMUNICATION)
def _minimum(counters: Sequence[Tensor], world: World) -> None:
    """Replace counters by their minima over all ranks, in one all-reduce; float64 holds them exactly."""
    if counters:
        lowest = torch.stack([counter.detach().to(torch.float64).reshape(()) for counter in counters])
        world.count("control", lowest)
        dist.all_reduce(lowest, dist.ReduceOp.MIN, group=world.group)
        for counter, value in zip(counters, lowest, strict=True):
            counter.copy_(value)


@phase(Phase.COMMUNICATION)
def _mean(tensors: Sequence[Tensor], world: World, kind: str) -> None:
    """Average over all ranks in place; one all-reduce per dtype."""

    def mean(flat: Tensor) -> Tensor:
        flat = flat.to(world.device)  # offloaded tensors are on the host
        world.count(kind, flat)
        dist.all_reduce(flat, group=world.group)
        return flat.div_(world.size)

    _replace(tensors, mean)


def _replace(tensors: Sequence[Tensor], exchange: Callable[[Tensor], Tensor]) -> None:
    """Replace tensors by what an exchange makes of them, concatenated; one exchange per dtype."""
    for dtype in {t.dtype: None for t in tensors}:
        of_dtype = [t for t in tensors if t.dtype == dtype]
        pieces = exchange(torch.cat([t.reshape(-1) for t in of_dtype])).split([t.numel() for t in of_dtype])
        torch._foreach_copy_(of_dtype, [piece.view(t.shape) for piece, t in zip(pieces, of_dtype, strict=True)])
