"""Execution of a network: eager, compiled by torch, or compiled and recorded as a CUDA graph."""

import itertools
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from paragan.core.errors import ConfigError, ParaganError, is_out_of_memory
from paragan.core.tree import map_tensors
from paragan.layers.update_once import update_once_layers

Call = Callable[..., Any]
BACKEND = "inductor"  # tests use backends that generate no code
_numbers = itertools.count()


@dataclass(frozen=True)
class CallCompiler:
    """Compiles modules. recorded: also records their kernel launches as CUDA graphs."""

    recorded: bool

    def __call__(self, module: nn.Module) -> Call:
        return CompiledModule(module, self.recorded)

    def begin_step(self) -> None:
        """Allow replays to overwrite what earlier steps have left on the device.

        Else torch allows it after every backward pass, although G's graph may still be needed after that of D.
        """
        if self.recorded:
            torch.compiler.cudagraph_mark_step_begin()


def call_compiler(name: str, device: torch.device) -> CallCompiler | None:
    """Return what compiles a module for `compile` or `graphs`; None means eager.

    `auto` runs eagerly until a choice is made.
    """
    if name not in ("compile", "graphs"):
        return None
    return CallCompiler(name == "graphs" and can_record(device))


def can_record(device: torch.device) -> bool:
    """Whether this device supports recorded launches (CUDA graphs)."""
    return device.type == "cuda"


class CompiledModule:
    """Compiled call of a module in training, equal to the module's call up to rounding.

    recorded: also record its kernel launches as a CUDA graph. One program is compiled for trained weights, one for
    frozen weights and one without gradients, each at its first call (up to minutes). The choice never depends on
    earlier calls, so that a resumed run repeats exactly. Not compiled: evaluation, and calls in which both weights and
    inputs require gradients, because a penalty will differentiate them twice, which torch.compile does not support.
    """

    def __init__(self, module: nn.Module, recorded: bool = False) -> None:
        self._module = module
        self._recorded = recorded
        # one for all: a player's weights are frozen together
        self._weight = next((w for w in module.parameters() if w.requires_grad), None)
        self._programs: dict[tuple[bool, bool], Call] = {}
        for layer in update_once_layers(module):
            # set on the instance from the start: dynamo recompiles when an attribute appears
            layer.update_due = layer.update_due

    def __call__(self, *inputs: Tensor | None) -> Any:
        differentiated = torch.is_grad_enabled()
        trained = differentiated and self._weight is not None and self._weight.requires_grad
        if not self._module.training or (trained and any(x is not None and x.requires_grad for x in inputs)):
            return self._module(*inputs)
        outputs = self._program((differentiated, trained))(*inputs)
        # the next replay overwrites its outputs
        return map_tensors(torch.clone, outputs) if self._recorded else outputs

    def _program(self, kind: tuple[bool, bool]) -> Call:
        """Return the program of a kind of call: with gradients, and of weights that train."""
        if kind not in self._programs:
            self._programs[kind] = _compile(self._module, self._recorded)
        return self._programs[kind]


def _compile(module: nn.Module, recorded: bool) -> Call:
    """Compile the module under a unique code object, by which torch caches programs.

    With a shared one, all kinds and modules would count against torch's limit of programs for a function.
    """

    def call(*inputs: Tensor | None) -> Any:
        return module(*inputs)

    call.__code__ = call.__code__.replace(co_name=f"call_{next(_numbers)}")
    options: dict[str, Any] | None = None
    if BACKEND == "inductor":  # dropout draws as it does uncompiled
        options = {"fallback_random": True} | ({"triton.cudagraphs": True} if recorded else {})
    return torch.compile(call, backend=BACKEND, options=options, dynamic=False)


@contextmanager
def report_compile_errors() -> Iterator[None]:
    """Turn errors of the compiler or of compiled code in the block into a `ConfigError`."""
    try:
        yield
    except (ParaganError, MemoryError):
        raise
    except Exception as error:
        if is_out_of_memory(error) or not _is_compiler_error(error):
            raise
        raise ConfigError(
            f"train.executor=compile does not run here ({error_line(error)}); pass train.executor=eager"
        ) from error


def error_line(error: BaseException) -> str:
    """Format an error as one line; for compiler errors, the inner exception."""
    error = getattr(error, "inner_exception", error)
    line = (str(error).strip().splitlines() or [""])[0][:200]
    return line if isinstance(error, ParaganError) else f"{type(error).__name__}: {line}"


def _is_compiler_error(error: Exception) -> bool:
    """Whether an error is of the compiler, or of code that it generated."""
    if any(kind.__name__ == "TorchDynamoException" for kind in type(error).__mro__):  # by name: its import is slow
        return True
    if "does not currently support double backward" in str(error):
        return True
    places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return any("/torch/_inductor/" in place or "torchinductor" in place for place in places)


def synchronized_time(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work.

    On a CPU with one thread this is the thread's CPU time, which other programs do not disturb.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return time.thread_time()
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
    return time.perf_counter()


def time_call(device: torch.device, run: Callable[[], object]) -> float:
    """Return the seconds of a call by `synchronized_time`."""
    began = synchronized_time(device)
    run()
    return synchronized_time(device) - began
