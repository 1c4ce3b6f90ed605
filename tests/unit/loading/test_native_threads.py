"""Threads that decode start no native threads of torch."""

import subprocess
import sys

from tests.processes import environment

PROGRAM = """
import os, threading
import torch
from paragan.loading.loader import _flip_in_place
from paragan.loading.stages import copy_bytes

torch.set_num_threads(4)
batch = torch.zeros(64, 3, 160, 160, dtype=torch.uint8)
part = torch.arange(32 * 3 * 160 * 160).remainder(251).to(torch.uint8).view(32, 3, 160, 160)
before = len(os.listdir("/proc/self/task"))
is_done = threading.Barrier(4)

def decode():
    for _ in range(5):
        copy_bytes(part, batch[:32])
        _flip_in_place(batch[32:34], [True, True])
    is_done.wait(60)
    is_done.wait(60)

threads = [threading.Thread(target=decode) for _ in range(3)]
for thread in threads:
    thread.start()
is_done.wait(60)
print(len(os.listdir("/proc/self/task")) - before, batch[:32].equal(part))
is_done.wait(60)
"""


def test_decoding_threads_start_no_native_threads():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["3", "True"], done.stdout + done.stderr
