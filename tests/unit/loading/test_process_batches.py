"""Processes that read ahead: batches of the loader, their order after a jump, errors, ends and time-outs."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from paragan.build.batches import batch_stream
from paragan.build.data import UnlabelledSource
from paragan.config import read_recipe
from paragan.core.errors import DataError
from paragan.datasets.base.program_data import DatasetSource
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.samples import SampleForm
from paragan.datasets.base.tensor_source import TensorSource
from paragan.loading.loader import Loader
from paragan.loading.process_batches import ProcessBatches
from paragan.loading.subset import SubsetSource

CPU = torch.device("cpu")
ROWS = 12


class Noise(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"x": row + torch.rand(2) + np.random.rand(), "row": row, "process": os.getpid()}


class Broken(Noise):
    def __init__(self, how):
        self.how = how

    def __getitem__(self, row):
        if multiprocessing.parent_process() is not None and row == 5:
            self.how()
        return super().__getitem__(row)


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


def fail():
    raise ValueError("bad sample\nand more")


def stream(data, timeout_s=60.0, num=2, batch=4):
    source = DatasetSource(data, SampleForm())
    source.not_finite = {}
    loader = Loader(source, batch, 7, CPU)
    return loader, ProcessBatches(loader, num, 4, timeout_s)


def values(batch):
    return {name: tensor.tolist() for name, tensor in batch.tensors.items() if name != "process"}


def children():
    return {process.pid for process in multiprocessing.active_children()}


@pytest.mark.filterwarnings("error")
def test_batches_are_those_of_the_loader_also_after_a_jump():
    loader, batches = stream(Noise(), num=4)
    first = [values(next(batches)) for _ in range(5)]
    processes = set(next(batches).tensors["process"].tolist())
    assert os.getpid() not in processes
    assert first == [values(next(loader)) for _ in range(5)]
    batches.position = 1
    assert values(next(batches)) == first[1] and batches.position == 2
    batches.close()
    assert values(next(batches)) == first[2]
    batches.close()
    assert not children()


def test_an_error_in_a_process_is_one_line_with_the_sample():
    _, batches = stream(Broken(fail))
    with pytest.raises(DataError, match=r"data: sample 5 raised ValueError: bad sample \(") as raised:
        [next(batches) for _ in range(4)]
    assert "\n" not in str(raised.value)
    batches.close()


@pytest.mark.parametrize(("how", "words"), [(kill, "exited unexpectedly"), (hang, "not read within 6 s")])
def test_a_process_that_dies_or_hangs_is_one_line_within_the_time_out(how, words):
    _, batches = stream(Broken(how), timeout_s=6.0)
    before = signal.getsignal(signal.SIGCHLD)
    began = time.monotonic()
    with pytest.raises(DataError, match=words) as raised:
        [next(batches) for _ in range(4)]
    assert "\n" not in str(raised.value) and time.monotonic() - began < 40
    assert signal.getsignal(signal.SIGCHLD) == before
    deadline = time.monotonic() + 20
    while children() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not children()


def test_samples_that_are_not_finite_are_noted_by_the_consumer():
    class Nan(Noise):
        def __getitem__(self, row):
            return {"x": torch.tensor(float("nan") if row == 3 else float(row))}

    loader, batches = stream(Nan())
    [next(batches) for _ in range(3)]
    batches.close()
    assert [*loader.source.not_finite] == ["x of sample 3"]


PROGRAM = """
import os, sys, time
from tests.unit.loading.test_process_batches import Noise, stream
_, batches = stream(Noise())
print(*{int(pid) for _ in range(4) for pid in next(batches).tensors["process"]}, flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_processes_end_with_a_run_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as run:
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 2
        run.kill()
    deadline = time.monotonic() + 30
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not any(is_alive(pid) for pid in pids)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def derived(source, how):
    return {
        "subset": lambda: SubsetSource(source, np.arange(ROWS // 2)),
        "unlabelled": lambda: UnlabelledSource(source),
        "twice": lambda: UnlabelledSource(SubsetSource(source, np.arange(ROWS // 2))),
    }[how]()


@pytest.mark.parametrize("how", ["subset", "unlabelled", "twice"])
def test_derived_source_is_read_ahead_by_processes_where_its_source_is(how):
    starts = []
    source = DatasetSource(Noise(), SampleForm())
    source.use_processes(3, starts.append)
    batches = batch_stream(read_recipe("digits", ["train.batch=4"]), derived(source, how), 0, CPU)
    assert isinstance(batches, ProcessBatches)  # threads would draw from the generators of the networks
    assert batches.source.num_processes(None) == 3
    batches.source.start_process(2)
    assert starts == [2]


@pytest.mark.parametrize("how", ["subset", "unlabelled", "twice"])
def test_derived_source_names_why_processes_cannot_share_its_source(how):
    data = Noise()
    data.lock = threading.Lock()
    source = derived(DatasetSource(data, SampleForm()), how)
    assert source.num_processes(2) == 0
    assert len(source.notices) == 1
    assert "cannot share it" in source.notices[0]


def test_derived_source_names_no_sample_a_second_time():
    source = TensorSource({"x": torch.cat([torch.zeros(199, 1), torch.full((1, 1), torch.nan)])}, Padding())
    assert source.notices_not_finite
    assert UnlabelledSource(source).notices_not_finite
