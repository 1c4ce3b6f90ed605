"""Groups of accelerators, where there is none: what is asked of torch, and how little is left of it."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from paragan.hardware import peers

HOST = torch.device("cpu")


def test_the_cpu_has_no_such_way():
    assert peers.accelerator_uuid(HOST) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="a host without accelerators is meant")
def test_nor_has_a_host_without_accelerators():
    assert peers.num_nccl_devices() == 0


@pytest.mark.parametrize("before", [None, "0"])
def test_no_watchdog_of_the_group_can_end_the_process(monkeypatch, before):
    """What torch is told is told while the group is made, and not for longer; then the two ends meet."""
    name, seen = "TORCH_NCCL_BLOCKING_WAIT", []

    class Made:
        Options = SimpleNamespace

        def __init__(self, store, rank, size, options):
            seen.append((os.environ[name], store, rank, size, options._timeout.total_seconds()))

        def eager_connect_single_device(self, device):
            seen.append((os.environ.get(name), device))

    monkeypatch.setattr(dist, "ProcessGroupNCCL", Made, raising=False)
    monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)
    assert isinstance(peers.connect_nccl_pair("store", 1, HOST, 7.0), Made)
    assert seen == [("1", "store", 1, 2, 7.0), (before, HOST)]
    assert os.environ.get(name) == before
