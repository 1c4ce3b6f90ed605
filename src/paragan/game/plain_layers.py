"""Layers that a copy of a network cannot have: wrapped for several devices, compiled, scripted, or lazy."""

from torch import jit, nn
from torch.nn.parameter import is_lazy

from paragan.core.errors import ConfigError

# by name, since FSDP takes long to import
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_ADVICE = "set train.executor=compile to compile it here"


def check_plain_layers(owner: str, net: nn.Module) -> None:
    """Raise `ConfigError` for layers that are wrapped, compiled or scripted, and for weights of unknown shape.

    owner: name of the network, for the message.
    """
    for name, module in net.named_modules():
        problem = _wrapper_problem(module) or _compiled_problem(module)
        if problem is not None:
            raise ConfigError(f"{owner}{f': its layer {name}' if name else ''} {problem}")
    if any(is_lazy(weight) for weight in net.parameters()):
        raise ConfigError(f"{owner} has a lazy layer of unknown size; call the network once first")


def _wrapper_problem(module: nn.Module) -> str | None:
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if "FSDPModule" in kinds:
        return "was sharded by fully_shard; pass it unsharded, and set g.strategy=zero3"
    wrapper = next((kind for kind in _WRAPPERS if kind in kinds), None)
    if wrapper is None:
        return None
    return (
        f"is a {wrapper}; pass its attribute `module`, the network inside it: settings distribute the training "
        "(devices, g.strategy, d.strategy)"
    )


def _compiled_problem(module: nn.Module) -> str | None:
    if hasattr(module, "_orig_mod"):  # torch's OptimizedModule
        return f"was compiled by torch.compile; pass the network that you gave to it, and {_ADVICE}"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return f"was compiled by its method compile; leave that call out, and {_ADVICE}"
    if isinstance(module, jit.ScriptModule):
        return "is a program of torch.jit; pass the network that it was made of"
    names = [name for name, value in vars(module).items() if hasattr(value, "_torchdynamo_orig_callable")]
    if not names:
        return None
    return (
        f"has the attribute {names[0]!r}, a function compiled by torch.compile, which a copy of the network would "
        f"share with it; leave torch.compile out, and {_ADVICE}"
    )
