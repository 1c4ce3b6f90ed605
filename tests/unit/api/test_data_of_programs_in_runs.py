"""Data of a program that blocks or fails within a run, and what is said of values, labels and streams."""

import signal
import time

import pytest
import torch
from torch.utils.data import DataLoader

from paragan.core.errors import DataError
from tests.unit.api.test_program_datasets import ROWS, SETTINGS, D, G, Pictures, Stream, pixels, trainer


class Blocking(Pictures):
    """Blocks once it is in the middle of a run."""

    num_read = 0

    def __getitem__(self, row):
        self.num_read += 1
        time.sleep(60 * (self.num_read == 70))
        return super().__getitem__(row)


def blocking_stream():
    held = Blocking()
    return lambda epoch: (held[row] for row in range(ROWS))


def failing_stream(epoch):
    for row in range(9):
        yield Pictures()[row]
    raise OSError("connection reset")


@pytest.mark.parametrize("data", [Blocking, blocking_stream, lambda: DataLoader(Blocking())])
def test_data_that_blocks_ends_the_run_within_the_time_out(data, tmp_path):
    began = time.monotonic()
    settings = {**SETTINGS, "train.kimg": 0.4, "train.timeout_s": 1, "every.sample_kimg": 0}
    with pytest.raises(DataError, match=r"train\.timeout_s"):
        trainer(data(), tmp_path, settings=settings).run()
    assert time.monotonic() - began < 50


def test_alarms_of_a_program_go_on(tmp_path):
    called = []
    handler = signal.signal(signal.SIGALRM, lambda *_: called.append(time.monotonic()))
    try:
        due = time.monotonic() + 0.3
        timer = signal.setitimer(signal.ITIMER_REAL, 0.3)
        trainer(Pictures(), tmp_path, settings={**SETTINGS, "train.timeout_s": 0.2}).run()
        while not called:
            assert time.monotonic() < due + 10
            time.sleep(0.01)
        assert called[0] >= due
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *timer)


def test_an_error_of_a_stream_names_the_sample(tmp_path):
    with pytest.raises(DataError, match=r"sample 9 of epoch 0.*connection reset"):
        trainer(failing_stream, tmp_path, settings={**SETTINGS, "train.kimg": 0.1}).run()


@pytest.mark.parametrize("kind", ["tensors", "samples", "loader"])
def test_labels_of_one_column_are_labels(kind, tmp_path):
    label_N1 = torch.arange(ROWS)[:, None] % 2
    x = torch.stack([torch.from_numpy(pixels(row)[None]) for row in range(ROWS)])
    rows = [{"x": x[row], "label": label_N1[row]} for row in range(ROWS)]
    tensors = {"x": x, "label": label_N1}
    data = {"tensors": tensors, "samples": rows, "loader": DataLoader(rows, collate_fn=stacked)}[kind]

    class Labelled(D):
        def forward(self, x, label):
            assert label.shape == x.shape[:1]
            return super().forward(x.float(), label)

    class OfLabels(G):
        def forward(self, z, label):
            return super().forward(z, label)

    trainer(data, tmp_path, OfLabels, Labelled).run()


def stacked(samples):
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


@pytest.mark.filterwarnings("ignore:generator")  # of its tanh
@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0, 1, "in [0, 1]"), (0, 255, "from 0"), (-2.1, 2.6, "from -2"), (-1, 1, None), (-0.9, 0.8, None)],
)
def test_images_that_are_not_in_the_range_of_training_are_warned_of(low, high, words, tmp_path, capsys):
    values = torch.linspace(low, high, ROWS * 64)
    x = values.reshape(64, ROWS).T.reshape(ROWS, 1, 8, 8).contiguous()  # nearly the whole range in each
    trainer({"x": x, "y": torch.arange(ROWS) % 2}, tmp_path).run()
    warnings = [line for line in capsys.readouterr().err.splitlines() if "shown and scored in [-1, 1]" in line]
    assert [words in line for line in warnings] == ([] if words is None else [True])


def test_a_stream_is_neither_empty_nor_small(tmp_path, capsys):
    trainer(DataLoader(Stream(), num_workers=2), tmp_path).run()
    said = capsys.readouterr()
    assert "streamed" in said.out and "0 samples" not in said.out
    assert "few_images" not in (tmp_path / "metrics.jsonl").read_text()
    assert "num_workers (a stream" in said.out + said.err
