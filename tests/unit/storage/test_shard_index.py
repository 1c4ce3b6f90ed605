"""The index of 1.3 million samples: its size in memory, and opening it against reading it."""

import os
import subprocess
import sys

import numpy as np
import pytest

from paragan.storage.shard_folder import RECORD, map_index
from tests.conftest import ROOT
from tests.data_refusals import refusal

COUNT = 1_300_000
MEASURE = """
import sys
from pathlib import Path
from paragan.storage.shard_folder import map_index
def resident():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
before = resident()
index = map_index(Path(sys.argv[1]), int(sys.argv[2]))
opened = resident() - before
total = sum(int(index[name].max()) for name in ("block", "num_bytes", "label", "split_hash", "sha256"))
print(opened, resident() - before, total)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("index") / "index.bin"
    records = np.zeros(COUNT, RECORD)
    records["label"] = np.arange(COUNT)
    path.write_bytes(records.tobytes())
    return path


def test_index_in_memory_stays_below_64_mb(path):
    assert path.stat().st_size == COUNT * 48
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", MEASURE, str(path), str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    opened, read, total = map(int, done.stdout.split())
    assert total == COUNT - 1
    assert opened < 2e6
    assert read <= 64e6


def test_an_index_of_another_size_is_refused(path):
    assert f"{path}: 62,400,000 bytes, expected 62,400,048" in refusal(lambda: map_index(path, COUNT + 1))
