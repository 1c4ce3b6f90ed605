"""A grid with its coordinator and workers in one process: lines are queues, workers are threads."""

import queue
import threading
from functools import partial

import torch.distributed as dist

from paragan.config import read_recipe
from paragan.core.errors import RankError
from paragan.core.types import Side
from paragan.extensions.grid.build.worker import communicator_factory
from paragan.extensions.grid.factory import GridFactory
from paragan.extensions.grid.transports.heartbeat import PeriodicHeartbeat, WorkerStatus
from paragan.extensions.grid.workers.coordinator import Coordinator
from paragan.extensions.grid.workers.membership import Membership
from paragan.extensions.grid.workers.worker import Worker
from tests.genome_digest import digest

WORDS = (
    *("train.threads=1", "train.batch=4", "model={name: mlp, latent: 4, g_widths: [8], d_widths: [8]}"),
    *("scheme=synchronous", "penalties=[]", "augment=null", "evaluation.features=null", "grid.batches=2"),
    *("grid.shape=2x2", "grid.fitness.num_images=8", "grid.executor=loop"),
)
WAIT_S = 60.0


class Line:
    """One end of two queues."""

    def __init__(self, going, coming, about=None):
        self.going, self.coming, self.peer_info = going, coming, about or {}
        self.disconnect_reason, self.peer_address = None, "here"

    def send(self, kind, **values):
        if self.disconnect_reason is not None:
            raise RankError(self.disconnect_reason)
        self.going.put({"kind": kind, **values})

    def receive(self, wait_s):
        try:
            return self.coming.get(timeout=wait_s) if wait_s > 0 else self.coming.get_nowait()
        except queue.Empty:
            return None

    def begin_close(self):
        self.disconnect_reason = "parted"

    close = begin_close


class Grid:
    """workers: how many. hooks: by worker, called before each of its steps."""

    def __init__(self, folder, *words, workers=2, timeout_s=WAIT_S, heartbeat_s=5.0, patience_s=WAIT_S, hooks=None):
        config = read_recipe("digits", [*WORDS, *words, f"train.timeout_s={WAIT_S:g}"])
        self.make_communicator = communicator_factory(config, dist.HashStore())
        self.factory = GridFactory(config, folder, lambda text: None)
        self.said, self.waiting = [], []
        self.workers, self.threads, self.beats = [], [], []
        self.timeout_s, self.patience_s = timeout_s, patience_s
        for number in range(workers):
            self.add_worker((hooks or {}).get(number))
        membership = Membership(
            accept=lambda: self.waiting.pop(0) if self.waiting else None,
            log=self.said.append,
            heartbeat_s=heartbeat_s,
            timeout_s=timeout_s,
        )
        options, first = config.grid, self.factory.cell(0)
        topology = self.factory.population([first], lambda text: None).topology
        self.coordinator = Coordinator(
            membership=membership,
            shape=options.rows_columns,
            topology=topology,
            make_communicator=self.make_communicator,
            like=first.centre,
            timeout_s=timeout_s,
        )

    def add_worker(self, hook=None):
        """One more worker."""
        there, here = queue.Queue(), queue.Queue()
        self.waiting.append(Line(there, here, {"host": f"host {len(self.workers)}"}))
        line = Line(here, there)
        status = WorkerStatus()
        self.beats.append(PeriodicHeartbeat(line.send, 0.1, status))
        population = partial(self.factory.population, log=lambda text: None)
        worker = Worker(
            connection=line,
            make_cell=self.factory.cell,
            make_population=population,
            make_communicator=self.make_communicator,
            status=status,
            timeout_s=self.patience_s,
        )
        if hook is not None:
            usual = worker._check_stop
            worker._check_stop = lambda: (hook(), usual())
        self.workers.append(worker)
        thread = threading.Thread(target=worker.run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def evolve(self, generations):
        for number in range(self.coordinator.at, generations):
            done = self.coordinator.evolve(number + 1)
        return done

    def genomes(self):
        return {cell: digest(found.centre[Side.G]) for cell, found in self.coordinator.collect().items()}


def alone(folder, generations, *words):
    factory = GridFactory(read_recipe("digits", [*WORDS, *words]), folder, lambda text: None)
    population = factory.population([factory.cell(number) for number in range(4)], lambda text: None)
    for _ in range(generations):
        population.evolve()
    return {cell.number: digest(cell.centre[Side.G]) for cell in population.cells}
