"""Record of every allocation and operation of code that runs on tensors without data.

`record_allocations` runs torch on fake tensors: shapes, strides and device names of real ones, on
the meta device. Autograd frees them when it frees real ones, so the record is that of a real step.
"""

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from paragan.core.errors import ConfigError
from paragan.game.optimizer_calls import runs_in_memory_order
from paragan.layers.warp import clear_cached_matrices

_NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


class AllocationRecord(TorchDispatchMode):
    """Allocations and operations so far.

    sizes: bytes of each storage, by number. events: numbers in order; `n` is the allocation of
    storage n, `~n` its release. kinds: what a storage holds, by number, where it was named.
    macs: multiply-accumulate operations of convolutions and matrix products. programs: operators of
    these with type and shapes, each of which a library compiles. saved: bytes of storages in
    `saved_for_backward`, by number.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fake_tensors = FakeTensorMode(allow_non_fake_inputs=True)  # one mode: it refuses those of others
        self.sizes: list[int] = []
        self.events: list[int] = []
        self.kinds: dict[int, str] = {}
        self.programs: set[tuple[Any, ...]] = set()
        self.macs = 0
        self.saved: dict[int, int] = {}
        self._numbers: dict[int, int] = {}  # of live storages, by identity
        self._references: dict[int, weakref.ref[Any]] = {}  # of these: they tell when a storage is freed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:
            return args[0].fake_device  # read as often as all operations together, so it takes the short way
        if func is torch.ops.aten._local_scalar_dense.default:  # `.item()`: "finite", so that no step is skipped
            return True if args[0].dtype == torch.bool else 1.0
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        count = flop_registry.get(func._overloadpacket)
        if count is not None:
            self.macs += count(*args, **kwargs, out_val=outputs) // 2
            tensors = [tensor for tensor in tree_leaves(args) if isinstance(tensor, Tensor)]
            self.programs.add((func, tensors[0].dtype, *(tensor.shape for tensor in tensors)))
        for tensor in tree_leaves(outputs):
            if isinstance(tensor, Tensor):
                self.number_of(tensor)
        return outputs

    def number_of(self, tensor: Tensor) -> int:
        """Return the number of a tensor's storage, which is recorded if it is new."""
        storage = tensor.untyped_storage()
        key = id(storage)
        if key not in self._numbers:
            number = len(self.sizes)
            self.sizes.append(storage.nbytes())
            self.events.append(number)
            self._numbers[key] = number
            self._references[key] = weakref.ref(storage, lambda _: self._release(key, number))
        return self._numbers[key]

    def name_kind(self, kind: str, tensors: Iterable[Tensor]) -> None:
        """Name what these tensors hold, such as `weights`; the first name of a storage counts."""
        for tensor in tensors:
            self.kinds.setdefault(self.number_of(tensor), kind)

    @contextmanager
    def saved_for_backward(self) -> Iterator[None]:
        """Record the bytes of each storage that autograd saves inside, in `saved`."""
        self.saved = {}

        def record(tensor: Tensor) -> Tensor:
            number = self.number_of(tensor)
            if number not in self.kinds:
                self.saved[number] = self.sizes[number]
            return tensor.detach()

        with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
            yield

    def _release(self, key: int, number: int) -> None:
        self.events.append(~number)
        del self._numbers[key], self._references[key]


@contextmanager
def record_allocations(record: AllocationRecord) -> Iterator[AllocationRecord]:
    """Replace tensors that are made inside by fake ones, and record them; a record can be continued.

    `ConfigError`: an operation inside needs the values that they lack.
    """
    for kind in (torch.optim.Adam, torch.optim.AdamW):
        runs_in_memory_order(kind)  # computes on real tensors, once per process
    try:
        with record.fake_tensors, record:
            yield record
    except _NEEDS_VALUES as error:
        raise ConfigError(
            f"paragan plan has tensors without values, and an operation of this recipe needs them "
            f"({' '.join(str(error).split())[:100]}); time it by a short training instead"
        ) from error
    finally:
        clear_cached_matrices()  # those made inside have no values


def to_fake(net: torch.nn.Module, device: torch.device) -> torch.nn.Module:
    """Replace the parameters and buffers of a network by fake ones on `device`; return it.

    Only inside `record_allocations`.
    """
    fakes: dict[int, Tensor] = {}  # by identity of the real one: weights may be shared

    def fake(tensor: Tensor) -> Tensor:
        if id(tensor) not in fakes:
            empty = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device)
            is_weight = isinstance(tensor, torch.nn.Parameter)
            fakes[id(tensor)] = torch.nn.Parameter(empty, tensor.requires_grad) if is_weight else empty
        return fakes[id(tensor)]

    for module in net.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = fake(tensor)  # type: ignore[assignment]
    return net
