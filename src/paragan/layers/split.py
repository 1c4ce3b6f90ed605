"""Splitting of layers over ranks, in place.

    split_layers(net, world, class_tables(net, 10_000) | {"head": Split.OUTPUTS})

The names of parameters do not change. A network on the meta device is never built whole: split it,
then `to_empty`, then `initialise`, which fills the shards.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.nn.utils import parametrize

from paragan.core.dist import World
from paragan.core.errors import ConfigError
from paragan.layers.conditional_norm import ConditionalBatchNorm
from paragan.layers.resample import DownConv2d, UpConv2d
from paragan.layers.row_exchange import SplitRanks
from paragan.layers.spectral_norm import SpectralNorm
from paragan.layers.split_layers import (
    ConditionalNormRows,
    EmbeddingRows,
    SplitByOutputs,
    SplitLayer,
    split_spectral_norm,
)


class Split(Enum):
    """How a layer is split: always by axis 0 of its weights.

    ROWS: tables of one row per class, of `nn.Embedding` and `ConditionalBatchNorm`. OUTPUTS:
    `nn.Linear`, `nn.Conv2d`, `UpConv2d`, `DownConv2d`.
    """

    ROWS = "rows"
    OUTPUTS = "outputs"


_PRODUCTS = (nn.Linear, nn.Conv2d, UpConv2d, DownConv2d)
_SPLITS: dict[tuple[Split, type[nn.Module]], type[SplitLayer]] = {
    (Split.ROWS, nn.Embedding): EmbeddingRows,
    (Split.ROWS, ConditionalBatchNorm): ConditionalNormRows,
    **dict.fromkeys(((Split.OUTPUTS, kind) for kind in _PRODUCTS), SplitByOutputs),
}


def class_tables(net: nn.Module, min_rows: int) -> dict[str, Split]:
    """Return the class tables of a network with so many rows, by the name of the layer."""
    return {name: Split.ROWS for name, table in _tables(net).items() if _num_rows(table) >= min_rows}


def describe_splits(net: nn.Module) -> str:
    """Return which layers can be split, and what is left to do if none can."""
    ways = []
    if tables := _tables(net).values():
        ways.append(f"lower tensor.rows to {max(map(_num_rows, tables)):,}")
    splittable = []
    for name, module in net.named_modules():
        with suppress(ConfigError):
            _split_class(name, module, Split.OUTPUTS)
            splittable.append(name)
    if splittable:
        ways.append(f"name layers in tensor.outputs, such as {splittable[0]}")
    if not ways:
        return "none of its layers can be split: use ddp, zero2 or zero3"
    return ", ".join([*ways, "or use ddp"])


def split_layers(net: nn.Module, world: World, splits: Mapping[str, Split]) -> nn.Module:
    """Split these layers, by their names, over the ranks of `world`, in place; return the network.

    Each rank gets its shard of the present weights. Spectral norm becomes that of the whole weight.
    A world of one changes nothing. Raises `ConfigError` for a layer that cannot be split so, and if
    a rank would have no part of it. No communication.
    """
    if world.size > 1:
        modules = dict(net.named_modules())
        shared = _shared_parameters(net)
        for name, how in splits.items():
            if name not in modules:
                raise ConfigError(f"the network has no layer {name!r} to split; leave it out")
            _split(name, modules[name], how, SplitRanks(world), shared)
    return net


def _split(name: str, layer: nn.Module, how: Split, ranks: SplitRanks, shared: set[int]) -> None:
    """Split a layer, or raise `ConfigError`. shared: ids of parameters of several layers."""
    split_class = _split_class(name, layer, how)
    roles = ["gain" if isinstance(layer, ConditionalBatchNorm) else "weight"]
    if getattr(layer, "bias", None) is not None:
        roles.append("bias")
    widths: tuple[int, ...] = ()
    for role in roles:  # all have the same number of rows, so the widths of any are those of the layer
        widths = _split_parameter(f"{name}.{role}", layer, role, ranks, shared)
    _change_class(layer, split_class, ranks, widths)


def _split_parameter(name: str, layer: nn.Module, role: str, ranks: SplitRanks, shared: set[int]) -> tuple[int, ...]:
    """Replace a parameter by this rank's shard; return the widths of all ranks."""
    holder: nn.Module = layer
    norms: list[SpectralNorm] = []
    if parametrize.is_parametrized(layer, role):
        holder = cast(nn.ModuleDict, layer.parametrizations)[role]
        norms = _spectral_norms(name, holder)
    key = "original" if norms else role  # a parametrisation holds the raw weight under this name
    whole = cast(nn.Parameter, holder._parameters[key])
    widths = _widths(name, whole, ranks.world.size, shared)
    shard = _shard(whole, ranks.world)
    holder._parameters[key] = shard
    for norm in norms:
        split_spectral_norm(norm, shard, ranks.reduce_group)  # sigma is that of the whole weight
    return widths


def _widths(name: str, whole: Tensor, num_ranks: int, shared: set[int]) -> tuple[int, ...]:
    """Return the length of each rank's shard; raise `ConfigError` if there cannot be one."""
    widths = tuple(len(part) for part in whole.chunk(num_ranks))
    if len(widths) < num_ranks:
        raise ConfigError(f"{name}: its {len(whole)} rows leave some of {num_ranks} ranks empty; use fewer ranks")
    if id(whole) in shared:
        raise ConfigError(f"{name} is shared by several layers and cannot be split; leave it out")
    return widths


def _shard(whole: nn.Parameter, world: World) -> Any:
    """Return this rank's part as a parameter: a `DTensor` that has the shape of the whole."""
    # a clone: a view would hold the memory of the whole weight
    part = whole.detach().chunk(world.size)[world.rank].clone(memory_format=torch.contiguous_format)
    stride = torch.empty(whole.shape, device="meta").stride()
    placed = DTensor.from_local(part, _mesh(world), [Shard(0)], run_check=False, shape=whole.shape, stride=stride)
    return nn.Parameter(placed, requires_grad=whole.requires_grad)


def _split_class(name: str, layer: nn.Module, how: Split) -> type[SplitLayer]:
    """Return what a layer becomes; raise `ConfigError` if it cannot."""
    kind: type[nn.Module] = parametrize.type_before_parametrizations(layer)
    # a subclass with another forward is not split; one that differs only in its initial weights is, as its base
    bases = [
        base for split, base in _SPLITS if split is how and issubclass(kind, base) and kind.forward is base.forward
    ]
    if not bases or _has_options(layer):
        kinds = ", ".join(known.__name__ for split, known in _SPLITS if split is how)
        raise ConfigError(
            f"{name}: {kind.__name__} cannot be split by {how.value}; only {kinds}, without groups, "
            "padding_idx, max_norm and sparse gradients: leave it out"
        )
    return _SPLITS[how, bases[0]]


def _has_options(layer: Any) -> bool:
    """Return whether a layer has options that its split class does not have."""
    if isinstance(layer, nn.Embedding):
        options = (layer.padding_idx, layer.max_norm)
        return options != (None, None) or layer.sparse or layer.scale_grad_by_freq
    return getattr(layer, "groups", 1) != 1


def _spectral_norms(name: str, steps: Any) -> list[SpectralNorm]:
    """Return the parametrisations of a weight; raise `ConfigError` if one is not spectral norm."""
    if not all(type(step) is SpectralNorm and step.dim == 0 and not step.u.is_complex() for step in steps):
        raise ConfigError(
            f"{name} cannot be split: a parametrisation other than paragan's spectral norm of real values; leave it out"
        )
    return list(steps)


def _change_class(layer: nn.Module, split_class: type[SplitLayer], ranks: SplitRanks, widths: tuple[int, ...]) -> None:
    """Let a layer be one of `split_class`, in place.

    Parametrisations, hooks and names of parameters stay, to which a wrapper would add a prefix. The class is made here,
    since it derives from that of the layer, of which a parametrisation has made one per layer.
    """
    kind = type(layer)
    layer.__class__ = type(f"{split_class.__name__}{kind.__name__}", (split_class, kind), {})
    assert isinstance(layer, SplitLayer)
    layer.ranks = ranks
    layer.widths = widths


def _mesh(world: World) -> DeviceMesh:
    """Return the mesh of the ranks, created once."""
    assert world.group is not None
    key = ("split", world.group)
    if key not in world.meshes:
        world.meshes[key] = DeviceMesh.from_group(world.group, world.device.type, mesh_dim_names=("split",))
    return cast(DeviceMesh, world.meshes[key])


def _tables(net: nn.Module) -> dict[str, nn.Embedding | ConditionalBatchNorm]:
    return {name: m for name, m in net.named_modules() if isinstance(m, nn.Embedding | ConditionalBatchNorm)}


def _num_rows(table: nn.Embedding | ConditionalBatchNorm) -> int:
    return table.num_embeddings if isinstance(table, nn.Embedding) else len(table.gain)


def _shared_parameters(net: nn.Module) -> set[int]:
    uses = Counter(id(parameter) for module in net.modules() for parameter in module.parameters(recurse=False))
    return {key for key, count in uses.items() if count > 1}
