"""A worker's part of a run, from its connection on."""

import gc
import signal
import socket
import sys
import threading
from datetime import timedelta

import pytest
import torch.distributed as dist

from paragan.config import dump, read_recipe
from paragan.core.dist import serve_store
from paragan.extensions.grid.build import coordinator as workers, worker as builder
from paragan.extensions.grid.transports.control import Listener
from paragan.extensions.grid.workers.handshake import TOKEN, new_token
from tests.processes import environment, running

SECRET = "5e" * 32
WAIT_S = 60.0


class Idle:
    def run(self):
        return ""


def test_worker_reading_data_sends_heartbeats(monkeypatch, tmp_path):
    """That may take longer than its coordinator waits for a heartbeat."""
    read = threading.Event()
    monkeypatch.setattr(builder, "_build_worker", lambda *_: read.wait(WAIT_S) and Idle())
    config = read_recipe("digits", ["grid.shape=2x2", "grid.heartbeat_s=0.01", "train.threads=1"])
    store = serve_store("127.0.0.1", 0, timedelta(seconds=WAIT_S))
    listener = Listener(SECRET)
    arguments = (SECRET, *listener.address, print, "cpu")
    worker = threading.Thread(target=builder.join_coordinator, args=arguments, daemon=True)
    worker.start()
    try:
        line = listener.accept(WAIT_S)
        line.send("welcome", config=dump(config), folder=str(tmp_path), store=store.port)
        assert [line.receive(WAIT_S)["kind"] for _ in range(3)] == ["beat"] * 3
    finally:
        read.set()
        listener.close()
        worker.join(WAIT_S)
    assert not worker.is_alive()


@pytest.mark.parametrize("transport", ["gloo", "mpi"])
def test_store_serves_as_long_as_the_coordinator(tmp_path, transport):
    config = read_recipe("digits", ["grid.shape=2x2", "workers=2", f"transport={transport}"])
    server = workers._CoordinatorServer(config, tmp_path, print, None, lambda generation: None, None)
    gc.collect()
    port = server.welcome["store"]
    store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=2), wait_for_workers=False)
    store.set("key", "value")
    server.listener.close()


def test_a_warning_of_the_scheduler_does_not_end_a_worker():
    """Slurm's `--signal=USR1` reaches every process of a step; the coordinator saves and then ends its workers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(100)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        words = [sys.executable, "-m", "paragan", "worker", address, "--device", "cpu"]
        with running(words, env=environment(**{TOKEN: new_token()})) as process:
            line, _ = server.accept()
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == -signal.SIGTERM
            line.close()
