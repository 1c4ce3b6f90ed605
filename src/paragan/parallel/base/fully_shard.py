"""Sharding of a network, block by block, by FSDP2 (`fully_shard`)."""

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.core.network_factory import NetworkFactory
from paragan.core.source import dtype_name
from paragan.layers.frozen import Frozen
from paragan.parallel.base.blocks import blocks
from paragan.parallel.base.strategy import NO_MEMORY_OPTIONS, MemoryOptions

_NEED_WHOLE = ("Muon", "Adafactor")  # in torch.optim: updates need whole weights


def mesh_of(world: World) -> DeviceMesh:
    """Return a one-dimensional mesh of all ranks."""
    if world.group is not None and world.size < dist.get_world_size():  # ranks of one player
        return DeviceMesh.from_group(world.group, world.device.type, mesh_dim_names=("shard",))
    return init_device_mesh(world.device.type, (world.size,), mesh_dim_names=("shard",))


def shard(
    net: nn.Module,
    mesh: DeviceMesh,
    memory: MemoryOptions = NO_MEMORY_OPTIONS,
    reshard_after_forward: bool = True,
    shards_constants: bool = True,
) -> nn.Module:
    """Shard every block, and then the rest of the network, in place.

    reshard_after_forward: False: the weights of a block stay gathered until its backward. Some weights cannot be
    sharded and stay replicated (`is_replicated`); the strategy reduces their gradients. shards_constants: False:
    weights that do not train stay replicated, too. `ConfigError` for a block whose weights have several dtypes.
    """
    # Shards are rows in memory.
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    replicated = {p for p in net.parameters() if is_replicated(p) or not (shards_constants or p.requires_grad)}
    offload = CPUOffloadPolicy() if memory.offload else OffloadPolicy()
    reduce = torch.bfloat16 if memory.bf16_reduce else None
    done = set(replicated)
    for module in (*blocks(net), net):  # blocks first: the root's group is of what no block has
        _check_one_dtype(module, [p for p in module.parameters() if p not in done and p.requires_grad])
        done.update(module.parameters())
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=reshard_after_forward,
            mp_policy=MixedPrecisionPolicy(reduce_dtype=reduce),
            offload_policy=offload,
            ignored_params=replicated,
        )
    return net


def is_replicated(weight: Tensor) -> bool:
    """Return whether a weight is whole on all ranks: a scalar, or complex, which FSDP2 does not shard with others."""
    return weight.dim() == 0 or weight.is_complex()


def _check_one_dtype(module: nn.Module, weights: Sequence[Tensor]) -> None:
    if len(names := sorted({dtype_name(weight.dtype) for weight in weights})) > 1:
        raise ConfigError(
            f"{type(module).__name__} has weights of {' and '.join(names)}, which zero2, zero3 and hsdp cannot shard "
            "together; use one dtype, or strategy ddp or zero1"
        )


def build_sharded(
    make: Callable[[], nn.Module], shard_net: Callable[[nn.Module], nn.Module], offload: bool = False
) -> nn.Module:
    """Build a network, shard it by `shard_net`, and return it.

    Weights are sharded before they are filled, so that no rank ever has all of them, unless only
    the constructor can fill them. Buffers are small and whole on every rank.
    """
    if not isinstance(make, NetworkFactory) or make.fill is None:
        return shard_net(make())
    with _weights_on_meta():
        net = make.construct()
    assert getattr(net, "weight_init", None) is not None, "a network that is initialised by name has `weight_init`"
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers() if not buffer.is_meta}
    net = shard_net(net)
    net.to_empty(device=torch.device("cpu") if offload else make.device)  # shards alone; buffers lose their values
    _restore_unsharded(net, buffers, make.device)
    make.fill(net)
    return net


def _restore_unsharded(net: nn.Module, buffers: Mapping[str, Tensor], device: torch.device) -> None:
    """Put buffers, with their values, and weights that are not sharded on the device."""
    for where, module in net.named_modules():
        if isinstance(module, Frozen):
            module.to(device)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                value = buffers.get(f"{where}.{name}" if where else name)
                module._buffers[name] = (buffer if value is None else value).to(device)
        for parameter in module._parameters.values():
            if parameter is not None and not isinstance(parameter, DTensor):
                parameter.data = parameter.data.to(device)


@contextmanager
def _weights_on_meta() -> Iterator[None]:
    """Free the memory of each parameter registered inside; buffers and constants stay."""
    register = nn.Module.register_parameter
    # Tied parameters stay tied. A reference with the id: that of a freed parameter may be given to a new one.
    placeholders: dict[int, tuple[weakref.ref[nn.Parameter], nn.Parameter]] = {}

    def on_meta(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and not parameter.is_meta:
            reference, placeholder = placeholders.get(id(parameter), (None, None))
            if placeholder is None or reference is None or reference() is not parameter:
                placeholder = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
                placeholders[id(parameter)] = weakref.ref(parameter), placeholder
            parameter = placeholder
        register(self, name, parameter)

    nn.Module.register_parameter = on_meta  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]


@contextmanager
def reduced_last(net: nn.Module) -> Iterator[None]:
    """Let a backward pass reduce all gradients at its end, not those of each block after the block.

    For penalties that differentiate twice: the graph of an input gradient reaches the weights of a block a second
    time. On a CPU torch runs that part first. On an accelerator it may run it after the block's own, for its passes
    have threads of their own there, which number operations anew. Encloses forward and backward.
    """
    modules = (module for module in net.modules() if isinstance(module, FSDPModule))
    groups = [group for module in modules for group in _groups(module)]
    for group in groups:
        # a hook that changes nothing: without its own, FSDP2 reduces a group at the end
        group._register_post_backward_hook = lambda args, kwargs: (args, kwargs)
    try:
        yield
    finally:
        for group in groups:
            del group._register_post_backward_hook


def _groups(module: FSDPModule) -> list[Any]:
    """Return what FSDP2 holds of a module's weights: a list since torch 2.12."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def check_steps_shards(policy: Any, strategy: str) -> None:
    """Raise `ConfigError` for an optimiser that cannot step shards of weights."""
    name = getattr(policy.kind, "__name__", "")
    if name == "Optimizer":  # of a file in optim/, which gives its name
        name = policy.kind.__module__.rpartition(".")[2]
    if name in _NEED_WHOLE or getattr(policy.kind, "needs_whole_weights", False):
        raise ConfigError(
            f"optimizer {name} needs whole weights, which strategy {strategy!r} shards; use Adam, or strategy ddp"
        )
