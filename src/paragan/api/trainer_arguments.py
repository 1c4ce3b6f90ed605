"""Arguments of `paragan.Trainer`, each refused in one line if it is of the wrong type."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from paragan.core.errors import ConfigError
from paragan.core.from_memory import FROM_MEMORY
from paragan.core.network_factory import copy_networks
from paragan.core.option_types import not_finite_item
from paragan.core.protocols import Loss, Penalty
from paragan.core.source import TensorSpec, dtype_name
from paragan.core.types import Side
from paragan.datasets.base.ragged import Padding
from paragan.game.plain_layers import check_plain_layers
from paragan.game.shared_memory import check_separate
from paragan.game.trained_part import check_saved, check_trains
from paragan.layers.discriminators import Discriminators


def several_discriminators(nets: Mapping[Any, nn.Module]) -> Discriminators:
    """Return discriminators by name as one network."""
    if not nets:
        raise ConfigError("discriminators is empty; pass a torch.nn.Module, or several by name, such as {'mpd': net}")
    for name in nets:
        if not isinstance(name, str):
            raise ConfigError(f"discriminators: the name {name!r} is not a string; use one such as 'mpd'")
    return Discriminators(**nets)


def padding_of(ragged: Any, buckets: Any) -> Padding:
    """Return how tensors of different lengths are padded."""
    axes = mapping_of("ragged", ragged, "the axis by name, such as {'audio': 1}")
    for name, axis in axes.items():
        if type(axis) is not int:
            raise ConfigError(f"ragged: the axis of {name} is {axis!r}; pass a whole number, such as {{{name!r}: 1}}")
    is_list = isinstance(buckets, Sequence) and not isinstance(buckets, str)
    if not is_list or any(type(length) is not int or length < 1 for length in buckets):
        raise ConfigError(f"buckets is {buckets!r}; pass a list of lengths, such as [256, 512]")
    return Padding(axes, tuple(sorted(buckets)))


def terms_of(terms: Any) -> tuple[Penalty, ...]:
    """Return the terms as a tuple."""
    if isinstance(terms, Sequence) and not isinstance(terms, str):
        return tuple(terms)
    raise ConfigError(f"terms is {_kind(terms)}; pass a list of terms: terms=[…]")


def extra_networks(players: Any) -> dict[str, nn.Module]:
    """Return the networks of extra players by name."""
    nets = mapping_of("players", players, "networks by name, such as {'fake_score': net}")
    for name, net in nets.items():
        if not isinstance(net, nn.Module):
            raise ConfigError(f"players: {name} is {_kind(net)}; pass a torch.nn.Module")
        check_plain_layers(f"players.{name}", net)
        check_trains(f"players.{name}", net)
        check_saved(f"players.{name}", net)
    return nets


def separate_copies(
    generator: nn.Module, discriminator: nn.Module, players: Mapping[str, nn.Module]
) -> tuple[nn.Module, nn.Module, dict[str, nn.Module]]:
    """Return copies of the networks; `ConfigError` if two have a weight in common, a warning if a buffer."""
    nets = {"generator": generator, "discriminator": discriminator, **players}
    check_separate(nets)  # of the originals: a copy of a weight has memory of its own
    return copy_networks((generator, discriminator, dict(players)), *nets.values())


def mapping_of(name: str, value: Any, content: str) -> dict[str, Any]:
    """Return an argument that is a mapping, or None, as a dict. content: what it takes, for the message."""
    if value is not None and not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {_kind(value)}; pass {content}")
    return dict(value or {})


def checked_module(net: Any, owner: str) -> nn.Module:
    """Return a network; raise `ConfigError` if it is no module, or has no weight to train."""
    if not isinstance(net, nn.Module):
        kind = f"the class {net.__name__}" if isinstance(net, type) else _kind(net)
        raise ConfigError(f"{owner} is {kind}; pass a torch.nn.Module")
    check_plain_layers(owner, net)
    check_trains(owner, net)
    check_saved(owner, net)
    return net


def shared_dtype(generator: nn.Module, discriminator: nn.Module) -> torch.dtype:
    """Return the format of the trained weights of both: float32 or float64. Raises `ConfigError` for others, or two."""
    formats = {"generator": _dtypes(generator), "discriminator": _dtypes(discriminator)}
    for owner, dtypes in formats.items():
        if low := sorted(map(dtype_name, dtypes - {torch.float32, torch.float64})):
            raise ConfigError(
                f"{owner} has weights of {', '.join(low)}; pass it with float32 weights, {owner}.float(), "
                f"and set {owner[0]}.precision (bf16, fp16) for what it computes in"
            )
    both = set().union(*formats.values())
    if len(both) > 1:
        texts = [f"{owner} {' and '.join(sorted(map(dtype_name, kinds)))}" for owner, kinds in formats.items() if kinds]
        raise ConfigError(
            f"weights differ in format: {', '.join(texts)}; give both one format, with .float() or .double()"
        )
    return both.pop() if both else torch.float32


def _dtypes(net: nn.Module) -> set[torch.dtype]:
    trained = (weight for weight in net.parameters() if weight.requires_grad)
    return {weight.dtype for weight in trained if weight.is_floating_point()}


def check_floating_point(name: str, spec: TensorSpec) -> None:
    """Raise `ConfigError` if the tensor that G generates has no floating-point numbers, or no numbers, in the data."""
    if 0 in spec.shape:
        raise ConfigError(f"data: a sample of {name} is of shape {spec.shape}, without a number; pass one or more")
    if not (spec.is_image or spec.dtype.is_floating_point or spec.dtype.is_complex):
        raise ConfigError(
            f"data: {name} is {dtype_name(spec.dtype)}, and a generator returns floating-point numbers; pass it as "
            "float32, classes and tokens as one-hot rows or as an argument that is not generated"
        )


def check_channels_first(name: str, spec: TensorSpec) -> None:
    """Raise `ConfigError` for images (H, W, C), whose rows would train as channels."""
    if spec.is_image and spec.shape[2] in (1, 3, 4) and min(spec.shape[:2]) > 4:
        raise ConfigError(
            f"data: {name} is {dtype_name(spec.dtype)} {spec.shape}, which looks like (height, width, channels); pass "
            f"(channels, height, width): {name}.permute(0, 3, 1, 2) of all images, .permute(2, 0, 1) of one"
        )


def record_of(term: Any) -> dict[str, str]:
    """Return the entry of `penalties` for a term; `ConfigError` for anything else."""
    if not isinstance(term, Penalty):
        raise ConfigError(
            f"terms: {type(term).__name__} is not a term; pass paragan.Term objects, or other paragan.Penalty objects"
        )
    if not isinstance(getattr(term, "name", None), str):
        raise ConfigError(f'terms: {type(term).__name__} has no name; set name = "my_term" in its class')
    if not isinstance(getattr(term, "side", None), Side):
        raise ConfigError(f"terms: {term.name} has no side; set side = paragan.Side.G or paragan.Side.D in its class")
    options = term if dataclasses.is_dataclass(term) else vars(term).get("options")
    fields = dataclasses.fields(options) if dataclasses.is_dataclass(options) else ()
    values = {field.name: getattr(options, field.name) for field in fields if field.name not in ("name", "side")}
    if type(options).__module__.startswith("paragan."):  # options of a user may mean something by infinity
        _check_finite(f"{term.side.value}: {term.name}", values)
    text = ", ".join(f"{name}={_text(value)}" for name, value in values.items())
    settings = f"{type(term).__name__}({text})"
    return {"name": FROM_MEMORY, "term": term.name, "side": term.side.value, "settings": settings}


def _check_finite(owner: str, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        if (item := not_finite_item(value, name)) is not None:
            raise ConfigError(f"{owner} has {item[0]}={item[1]}; pass a finite number")


def recorded_loss(loss: Any) -> dict[str, str]:
    """Return the entry `loss` for a loss object; `ConfigError` for anything else."""
    if not isinstance(loss, Loss):
        raise ConfigError(f"loss is {_kind(loss)}; pass a name, such as 'hinge', or a paragan.Loss")
    return {"name": FROM_MEMORY, "functions": f"{_text(loss.d)}, {_text(loss.g)}"}


def _text(value: Any) -> str:
    """Return a value as text that is equal in every process: functions by name."""
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(str, value)))}}}"
    return repr(value)


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
