"""Errors of actions of all ranks: which one each rank raises."""

import pytest
import torch

from paragan.core.collective import rank_error_from
from paragan.core.errors import RankError


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("Storage size calculation overflowed with sizes=[4611686018427387904]"),
    ],
)
def test_lack_of_memory_in_a_collective_is_not_called_a_missing_rank(error):
    with pytest.raises(RuntimeError) as raised, rank_error_from("not every rank joined", "try again"):
        raise error
    assert raised.value is error


def test_broken_collective_is_called_a_missing_rank():
    with pytest.raises(RankError, match="not every rank") as raised, rank_error_from("not every rank joined", "again"):
        raise RuntimeError("Connection closed by peer")
    assert isinstance(raised.value.__cause__, RuntimeError)
