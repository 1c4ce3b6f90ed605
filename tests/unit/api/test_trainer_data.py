"""Data of `pg.Trainer` without random access, and rows of different lengths."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import paragan as pg
from paragan.core.types import Rows
from paragan.datasets.base.program_data import DatasetSource
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.samples import SampleForm
from paragan.datasets.base.tensor_source import TensorSource
from paragan.loading.iterable_stream import IterableStream
from tests.unit.api.test_trainer import BATCH, TINY, Drawn, saved, tensors, trainer

CPU = torch.device("cpu")
ROWS = 20


def epoch_of(number):
    """The samples of an epoch, in an order that depends on it."""
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(number)).tolist()
    return ({name: tensor[row] for name, tensor in tensors().items()} for row in order)


def test_batches_of_an_iterable_are_its_samples_in_order(tmp_path):
    source = trainer(tmp_path, epoch_of).source
    expected = [sample["point"] for epoch in range(3) for sample in epoch_of(epoch)]
    stream = IterableStream(source, BATCH, CPU, (0, BATCH))
    batches = [next(stream) for _ in range(5)]
    assert torch.equal(torch.cat([batch.tensors["point"] for batch in batches]), torch.stack(expected[: 5 * BATCH]))
    second = IterableStream(source, BATCH, CPU, (6, 2))
    second.position = 4
    batch = next(second)
    assert batch.rows == Rows(step=4, first=6, count=2, total=BATCH)
    assert torch.equal(batch.tensors["point"], batches[4].tensors["point"][6:])
    second.position = 1  # a restored earlier checkpoint
    assert torch.equal(next(second).tensors["point"], batches[1].tensors["point"][6:])


def test_iterable_that_ends_is_one_line(tmp_path):
    with pytest.raises(pg.DataError, match="the iterable of epoch 1 has no samples"):
        trainer(tmp_path, lambda epoch: epoch_of(0) if epoch == 0 else ()).run()


def ragged(count=ROWS):
    """Sounds (1, L) of 3 to 9 samples, and words (L, 2) of other lengths."""
    draws = torch.Generator().manual_seed(2)
    lengths = torch.randint(3, 10, (count, 2), generator=draws).tolist()
    sounds = [torch.randn(1, length, generator=draws, dtype=torch.float64) for length, _ in lengths]
    return {"audio": sounds, "words": [torch.ones(length, 2, dtype=torch.float64) for _, length in lengths]}


class Echo(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, words, words_mask, audio_mask):
        assert not words[~words_mask].any()
        loudness = words.sum((1, 2)) / words_mask.sum(1)
        return (self.gain * loudness)[:, None, None] * audio_mask[:, None]


class Ear(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, audio, audio_mask):
        heard = (self.weight * audio).square()[:, 0].masked_fill(~audio_mask, 0)
        return heard.sum(1) / audio_mask.sum(1)


class Ragged(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {name: held[row] for name, held in ragged().items()}


def test_ragged_rows_are_padded_to_the_longest_of_the_batch_with_a_mask(tmp_path):
    source = pg.Trainer(Echo(), Ear(), ragged(), out=tmp_path).source
    rows = np.array([2, 5, 7])
    fetched = source.fetch(rows)
    lengths = [ragged()["audio"][row].shape[1] for row in rows]
    assert fetched["audio"].shape == (3, 1, max(lengths))
    assert fetched["audio_mask"].sum(1).tolist() == lengths
    assert not fetched["audio"][:, 0][~fetched["audio_mask"]].any()
    assert torch.equal(fetched["audio"][0, :, : lengths[0]], ragged()["audio"][2].float())
    bucketed = pg.Trainer(Echo(), Ear(), ragged(), out=tmp_path, buckets=(32, 16)).source.fetch(rows)
    assert bucketed["audio"].shape == (3, 1, 16)
    assert bucketed["words"].shape == (3, 16, 2)


def test_ragged_rows_train_equally_for_any_buckets_and_micro_batches(tmp_path):
    settings = {**TINY, "g.ema": None}
    axes = {"audio": 1, "words": 0}
    runs = [
        pg.Trainer(Echo().double(), Ear().double(), ragged(), settings=settings, out=tmp_path / "a").run(),
        pg.Trainer(
            Echo().double(), Ear().double(), ragged(), settings=settings, out=tmp_path / "b", buckets=[64]
        ).run(),
        pg.Trainer(Echo().double(), Ear().double(), Ragged(), settings=settings, out=tmp_path / "c", ragged=axes).run(),
        pg.Trainer(
            Echo().double(), Ear().double(), ragged(), settings={**settings, "d.micro_batches": 4}, out=tmp_path / "d"
        ).run(),
    ]
    for side in ("g", "d"):
        first, *others = (saved(run, side) for run in runs)
        for other in others:
            for name in (name for name in first if name.startswith("net/")):
                torch.testing.assert_close(other[name], first[name], rtol=0, atol=1e-12)


class Uneven(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"point": torch.zeros(2), "frames": torch.zeros(4 + row % 2)}


def test_undeclared_ragged_rows_are_one_line(tmp_path):
    with pytest.raises(pg.DataError, match=r"sample \d+ has .*; .* name the axis that differs: ragged={NAME: AXIS}"):
        trainer(tmp_path, Uneven()).run()
    two = {"audio": [torch.zeros(1, 3), torch.zeros(2, 4)]}
    with pytest.raises(pg.DataError, match=r"'audio' differ in more than one axis \(\(1, 3\), \(2, 4\)\); pad them"):
        pg.Trainer(Echo(), Ear(), two, out=tmp_path)


@pytest.mark.parametrize("data", [ragged(), lambda epoch: iter([{"row": torch.zeros(2)}])], ids=["ragged", "streamed"])
def test_prefetch_of_ragged_or_streamed_samples_is_refused(tmp_path, data):
    nets = (Echo(), Ear()) if isinstance(data, dict) else (Drawn(nn.Linear(3, 2)), nn.Linear(2, 1))
    with pytest.raises(pg.ConfigError, match="prefetch is not available for ragged or streamed samples"):
        pg.Trainer(*nets, data, settings={"loading.prefetch": 2}, out=tmp_path)


def test_arrays_and_lists_of_numbers_are_tensors(tmp_path):
    arrays = {name: tensor.numpy() for name, tensor in tensors().items()}
    arrays["frames"].flags.writeable = False
    numbers = torch.linspace(0, 1, ROWS).tolist()
    found = trainer(tmp_path, {**arrays, "size": numbers, "words": list(arrays["frames"])}).source
    expected = trainer(tmp_path, tensors()).source
    rows = np.array([3, 1])
    for name, tensor in expected.fetch(rows).items():
        assert torch.equal(found.fetch(rows)[name], tensor)
    assert found.fetch(rows)["size"].tolist() == pytest.approx([numbers[3], numbers[1]])
    assert torch.equal(found.fetch(rows)["words"], expected.fetch(rows)["frames"])


@pytest.mark.parametrize("data", [ragged, Ragged], ids=["mapping", "dataset"])
def test_ragged_axes_count_from_the_end_as_from_the_front(tmp_path, data):
    front, end = (
        pg.Trainer(Echo(), Ear(), data(), out=tmp_path, ragged=axes, buckets=[9]).source
        for axes in ({"audio": 1, "words": 0}, {"audio": -1, "words": -2})
    )
    assert end.tensors == front.tensors
    assert end.tensors["audio"].padded_axis == 1
    rows = np.array([2, 5])
    assert all(torch.equal(tensor, front.fetch(rows)[name]) for name, tensor in end.fetch(rows).items())


class Same(Dataset):
    """Samples of this one."""

    def __init__(self, sample, count=ROWS):
        self.sample, self.count = sample, count

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        return self.sample


def table_with_text(dtype="f8"):
    """A table as of a CSV file, whose rows have a length that is no multiple of a number's."""
    table = np.zeros(ROWS, [("kind", "U1"), ("age", dtype), ("flag", "u1"), ("city", "S2")])
    table["age"], table["city"] = np.arange(ROWS) % 9, b"Um"
    return table


@pytest.mark.parametrize(
    "array",
    [
        table_with_text()["age"],
        table_with_text("f4")["age"][::-1],
        table_with_text(">f8")["age"],
        np.arange(ROWS * 4.0).reshape(ROWS, 4)[::-1],
        np.arange(ROWS * 4.0).reshape(ROWS, 4)[::2, ::-1],
        np.arange(ROWS * 4.0, dtype=">f4").reshape(ROWS, 4)[::-1],
        np.ones(ROWS + 1, [("flag", "u1"), ("image", "i4", 1)])["image"][::-3],
    ],
    ids=["column", "reversed column", "big-endian", "rows", "columns", "big-endian rows", "nested"],
)
def test_arrays_that_torch_cannot_share_are_copied(array):
    """Views whose steps are negative, or no multiple of a number's length."""
    expected = torch.tensor(array.tolist())
    source = TensorSource({"x": array}, Padding({}))
    assert torch.equal(source.fetch(np.arange(len(array)))["x"].to(expected.dtype), expected)
    samples = DatasetSource(Same({"x": array}, 1), SampleForm())
    assert torch.equal(samples.fetch(np.array([0]))["x"][0].to(expected.dtype), expected)


def test_the_column_of_text_is_named_and_not_the_number_beside_it(tmp_path):
    table = table_with_text()
    columns = {name: table[name] for name in table.dtype.names}
    with pytest.raises(pg.DataError, match="the mapping has 'kind' of type ndarray"):
        trainer(tmp_path, columns)
    with pytest.raises(pg.DataError, match="the mapping has 'city' of type ndarray"):
        trainer(tmp_path, {name: columns[name] for name in ("age", "flag", "city")})
    with pytest.raises(pg.DataError, match="column 'city' holds other values than numbers"):
        trainer(tmp_path, {"point": table[["age", "city"]]})


POINT = {"point": torch.zeros(2), "frames": torch.zeros(4)}
HOPELESS = {
    "data: sample 0 has 'file' of type str; pass a tensor, an array of numbers or a number, or leave it out": {
        "data": Same({"file": "a.wav"})
    },
    "data: sample 1 has 'name' of type str; pass a tensor, an array of numbers or a number, or leave it out": {
        "data": {**tensors(2), "name": [1, "b"]}
    },
    "data: the name 3 is not a string; use one such as 'audio'": {"data": Same({3: torch.zeros(2)})},
    "ragged is a list; pass the axis by name, such as {'audio': 1}": {"ragged": ["frames"]},
    "data: samples of 'words' differ in another axis than 0 ((2, 3), (4, 2)); pad them": {
        "data": {**tensors(2), "words": [torch.zeros(2, 3), torch.zeros(4, 2)]}, "ragged": {"words": 0}
    },
    "buckets is [0]; pass a list of lengths, such as [256, 512]": {"buckets": [0]},
    "terms is a Term; pass a list of terms: terms=[…]": {"terms": pg.Term(name="far", function=lambda o, i: o.images)},
    "settings is a list; pass values by dotted key, such as {'train.batch': 16}": {"settings": ["train.batch=16"]},
}  # fmt: skip


@pytest.mark.parametrize("message", HOPELESS)
def test_argument_of_the_wrong_type_is_one_line(message, tmp_path):
    with pytest.raises(pg.ParaganError) as raised:
        trainer(tmp_path / "run", **HOPELESS[message])
    assert str(raised.value) == message
    assert not (tmp_path / "run").exists()
