"""`paragan worker` as a process of its own."""

import signal
import socket
import sys

from paragan.extensions.grid.workers.handshake import TOKEN, new_token
from tests.processes import environment, running


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
