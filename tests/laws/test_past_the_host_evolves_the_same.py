"""Law: a grid whose genomes go from device to device is, bit for bit, the grid of one process."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist

from paragan.build import communicators
from paragan.coevolution.workers.cell_assignment import assign_cells
from paragan.coevolution.workers.genome_exchange import GenomeExchange, exchange_routes
from paragan.config import read_recipe
from paragan.core.types import Side
from paragan.hardware import peers
from tests.distributed.cases_communicators import fine, together
from tests.distributed.cases_direct import HOST, Device, join
from tests.laws.test_any_workers_evolve_the_same import GENERATIONS, WORDS, found, grid
from tests.unit.threaded_grid import Grid, alone

pytestmark = pytest.mark.distributed


@pytest.fixture(autouse=True)
def loopback(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


@pytest.mark.parametrize("num_workers", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_that_exchange_from_devices_equal_one_process(tmp_path, num_workers):
    expected = grid(WORDS, range(9), tmp_path / "alone")
    for _ in range(GENERATIONS):
        expected.evolve()
    owners = assign_cells(3, 3, [1.0] * num_workers)
    store, ways = dist.HashStore(), exchange_routes(owners, expected.topology(0))
    peers = [{b for a, b in ways if a == rank} for rank in range(num_workers)]

    def evolve(rank):
        torch.set_num_threads(1)
        communicator, counts = join(store, rank, peers), []
        usual = communicator.exchange
        communicator.exchange = lambda sends: (counts.extend(map(len, sends.values())), usual(sends))[1]
        population = grid(WORDS, [cell for cell, owner in enumerate(owners) if owner == rank], tmp_path)
        cells = population.cells
        population.exchange = GenomeExchange(communicator, owners, population.topology, cells[0].centre, HOST)
        for _ in range(GENERATIONS):
            population.evolve()
        communicator.close()
        assert sum(communicator.stand_in.sent) > 0
        assert counts and not any(count % 5 for count in counts)  # of either genome, what lies on the device by itself
        return found(population)

    parts = fine(together(num_workers, evolve))
    assert {number: told for part in parts for number, told in part.items()} == found(expected)


class Past(Grid):
    """Communicators are made as those of a run, and the device of a worker is the host."""

    def __init__(self, *everything, **settings):
        self.store, self.devices = dist.HashStore(), []
        super().__init__(*everything, **settings)

    def add_worker(self, *everything):
        super().add_worker(*everything)
        self.workers[-1].device = HOST

    def pair(self, *everything):
        self.devices.append(Device())
        return self.devices[-1].pair(*everything)

    def make_communicator(self, order, stopped):
        device = HOST if order["rank"] < order["size"] else None
        return communicators.communicator_factory(read_recipe("digits", ["transport=nccl"]), self.store, device)(
            order, stopped
        )


def test_failed_worker_is_replaced_bit_for_bit(tmp_path, monkeypatch):
    """Its cells go on from copies that came past the host, on a worker that has them from there."""
    dead = threading.Event()
    hooks = {1: lambda: dead.is_set() and threading.Event().wait(30)}
    monkeypatch.setattr(peers, "connect_nccl_pair", lambda *everything: whole.pair(*everything))
    whole = Past.__new__(Past)
    whole.__init__(tmp_path, workers=3, hooks=hooks)
    try:
        whole.evolve(2)
        assert sum(size for device in whole.devices for size in device.sent) > 0
        assert {worker._exchange.device for worker in whole.workers} == {HOST}
        whole.coordinator.membership.members[1].line.disconnect_reason = whole.workers[1].line.disconnect_reason = (
            "killed"
        )
        dead.set()
        whole.evolve(4)
        assert any(" failed: " in text for text in whole.said)
        centres = {cell: state.centre[Side.G].digest for cell, state in whole.coordinator.collect().items()}
        assert centres == alone(tmp_path / "alone", 4)
    finally:
        dead.clear()
        whole.coordinator.end()
