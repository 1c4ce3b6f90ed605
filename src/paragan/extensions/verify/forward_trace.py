"""Trace of one forward: weights used outside their block, and where a tensor's value is read.

`explanations` names them as causes of broken laws. A sharded strategy gathers the weights of a block only while the
block runs, so a use outside meets a part of them. A forward that reads a value may branch on it, and the value differs
with the rows of a batch and the precision.
"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from paragan.core.outside_code import is_outside_file
from paragan.game import network
from paragan.parallel.base.blocks import blocks

# functions of a tensor that read its values
_VALUE_ACCESS = {"item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"}
# the user's forward runs below the frame of this file, which calls it
_CALLER = str(Path(network.__file__).resolve())


class ForwardTrace(TorchFunctionMode):
    """Trace of the torch calls in a forward: weights used outside their block, tensor values read.

    Not found: weights inside a list of arguments, as in `torch.cat([weight, x])`, and calls that return several
    tensors, as `weight.chunk(2)`.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        names = {module: name for name, module in net.named_modules()}
        self.blocks = {block: names[block] for block in blocks(net)}
        weights = {id(weight): name for name, weight in net.named_parameters()}
        self.owners: dict[int, tuple[str, nn.Module]] = {}  # name and block of weights, by identity
        for block in self.blocks:  # they do not nest: one block owns a weight
            self.owners |= {id(weight): (weights[id(weight)], block) for weight in block.parameters()}
        self.running_blocks: list[nn.Module] = []
        self.used_outside: dict[tuple[str, str], None] = {}  # (weight, block), in order, each once
        self.value_access = ""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the forward inside this context."""

        def leave(_block: nn.Module, _inputs: object, _output: object) -> None:
            self.running_blocks.pop()

        hooks = []
        for block in self.blocks:
            hooks.append(block.register_forward_pre_hook(lambda block, _: self.running_blocks.append(block)))
            hooks.append(block.register_forward_hook(leave, always_call=True))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in _VALUE_ACCESS:
            self.value_access = self.value_access or user_code_line()
        # a use of a weight returns a tensor with a gradient, which `weight.shape` is not; a call that returns the
        # Parameter, as one in place or `.to` without a copy, changes or names the weight
        if isinstance(out, Tensor) and out.requires_grad and not isinstance(out, nn.Parameter):
            for argument in (*args, *(kwargs or {}).values()):
                weight, block = self.owners.get(id(argument), ("", None))
                if block is not None and block not in self.running_blocks:
                    self.used_outside[weight, self.blocks[block]] = None
        return out


def user_code_line() -> str:
    """Return file and line of the user's code that is running, or ""."""
    frames = traceback.extract_stack()
    call = next((number for number, frame in enumerate(frames) if frame.filename == _CALLER), len(frames))
    for frame in reversed(frames[call:]):
        if is_outside_file(frame.filename):
            return f"{Path(frame.filename).name}:{frame.lineno}"
    return ""
