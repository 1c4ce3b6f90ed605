"""Data sets as programs have them: tuples, pictures, float64, loaders, iterables, Hugging Face."""

import random
import threading
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import paragan as pg
from paragan.core import rng
from paragan.core.errors import ConfigError, DataError
from paragan.datasets.base.samples import as_tensor
from tests.tiny_run import newest

ROWS = 20
SETTINGS = {"train.batch": 4, "train.kimg": 0.016, "every.log_steps": 1, "evaluation.features": None}


class G(nn.Module):
    """Makes a picture 1x8x8 of a class."""

    latent = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3 + 2, 64)

    def forward(self, z, y):
        return torch.tanh(self.layer(torch.cat([z, nn.functional.one_hot(y, 2)], 1))).view(-1, 1, 8, 8)


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64 + 2, 1)

    def forward(self, x, y):
        return self.layer(torch.cat([x.flatten(1), nn.functional.one_hot(y, 2)], 1))


def pixels(row):
    return np.random.default_rng(row).integers(0, 256, (8, 8), np.uint8)


class Pictures(Dataset):
    """Pictures of Pillow with a class, as torchvision has them. kind: of the sample."""

    def __init__(self, kind=tuple):
        self.kind = kind

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        image = Image.fromarray(pixels(row))
        return {"x": image, "y": row % 2} if self.kind is dict else self.kind((image, row % 2))


class Column:
    names: ClassVar = ["cat", "dog"]


class HuggingFace:
    """What `datasets.Dataset` has of a map-style data set."""

    features: ClassVar = {"x": None, "y": None, "label": Column(), "caption": None, "boxes": None}

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        image = Image.fromarray(pixels(row))
        return {"x": image, "y": row % 2, "label": row % 2, "caption": "a cat", "boxes": [[1], [2, 3]]}


class Stream(IterableDataset):
    """Has a length and no samples by number."""

    epoch = 0

    def __len__(self):
        return ROWS

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([Pictures()[(row + self.epoch) % ROWS] for row in range(ROWS)])


def doubled(samples):
    """A function that makes a batch, with the classes of torchvision exchanged."""
    images, classes = zip(*samples, strict=True)
    return torch.stack([as_tensor(image, "x", "") for image in images]), 1 - torch.tensor(classes)


DATA = {
    "tuples": Pictures,
    "lists": lambda: Pictures(list),
    "mappings": lambda: Pictures(dict),
    "hugging-face": HuggingFace,
    "loader": lambda: DataLoader(Pictures(), batch_size=7, shuffle=True, drop_last=True),
    "loader-sampler": lambda: DataLoader(Pictures(), sampler=WeightedRandomSampler([1.0] * ROWS, 5)),
    "list": lambda: [Pictures()[row] for row in range(ROWS)],
}


def trainer(data, out, g=G, d=D, settings=SETTINGS, **arguments):
    torch.manual_seed(0)
    return pg.Trainer(g(), d(), data, settings=settings, out=out, **arguments)


@pytest.mark.parametrize("name", DATA)
def test_each_kind_of_data_set_has_the_samples_of_its_rows(name, tmp_path):
    source = trainer(DATA[name](), tmp_path).source
    fetched = source.fetch(np.array([3, 0]))
    assert torch.equal(fetched["x"], torch.stack([torch.from_numpy(pixels(row))[None] for row in (3, 0)]))
    assert fetched["y"].tolist() == [1, 0] and source.tensors["x"].is_image
    assert source.class_names == (("cat", "dog") if name == "hugging-face" else ())


def test_what_is_not_used_of_a_data_set_is_said(tmp_path):
    notices = {name: " ".join(trainer(DATA[name](), tmp_path).source.notices) for name in DATA}
    assert all(word in notices["loader"] for word in ("shuffle", "batch_size", "sampler", "train.batch"))
    assert "caption, boxes" in notices["hugging-face"] and "left out" in notices["hugging-face"]
    assert notices["tuples"] == notices["mappings"] == ""
    for more in ({"file": "3.png"}, {"file": "3.png", "boxes": [[1], [2, 3]]}, {"made": None}):  # of a `Dataset`
        data = trainer([{**Pictures(dict)[row], **more} for row in range(ROWS)], tmp_path).source
        assert f"{', '.join(more)} has no numbers and is left out" in " ".join(data.notices)
        assert set(data.fetch([0, 3])) == {"x", "y"}
    three = TensorDataset(torch.rand(8, 1, 8, 8), torch.zeros(8, dtype=torch.int64), torch.zeros(8))
    assert "3 values" in " ".join(trainer(three, tmp_path).source.notices)


@pytest.mark.parametrize("name", ["tuples", "loader", "hugging-face", "stream", "loader-stream"])
def test_each_kind_trains_and_resumes_bit_for_bit(name, tmp_path, capsys):
    make = {**DATA, "stream": Stream, "loader-stream": lambda: DataLoader(Stream(), batch_size=3)}[name]
    whole = trainer(make(), tmp_path / "whole").run()
    trainer(make(), tmp_path / "parts", settings={**SETTINGS, "train.kimg": 0.008}).run()
    parts = trainer(make(), tmp_path / "parts").run()
    assert whole.is_finished and parts.is_finished
    assert ("streamed samples: x 1x8x8 uint8" in capsys.readouterr().out) == ("stream" in name)
    for file in ("g.safetensors", "d.safetensors"):
        assert (newest(tmp_path / "whole") / file).read_bytes() == (newest(tmp_path / "parts") / file).read_bytes()


def test_a_stream_reads_each_epoch_under_its_number(tmp_path):
    source = trainer(Stream(), tmp_path).source
    first = next(sample[0].tobytes() for sample in source.samples(1))
    assert first == pixels(1).tobytes()


def test_the_function_that_makes_a_batch_is_that_of_the_loader(tmp_path):
    source = trainer(DataLoader(Pictures(), collate_fn=doubled), tmp_path).source
    assert source.fetch(np.array([0, 1, 2]))["y"].tolist() == [1, 0, 1]


class Unconditional(nn.Module):
    latent = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 64)

    def forward(self, z):
        return torch.tanh(self.layer(z)).view(-1, 1, 8, 8)


def sequential(inputs, *last):
    net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, last[0]), *last[1:])
    net.latent = 3
    return net


def test_values_of_tuples_have_the_names_of_arguments(tmp_path):
    class Image1(nn.Linear):
        def forward(self, picture):
            return super().forward(picture.flatten(1))

    source = trainer(Pictures(), tmp_path, Unconditional, lambda: Image1(64, 1)).source
    assert [*source.tensors] == ["picture"] and "2 values" in " ".join(source.notices)
    shaped = pg.Trainer(sequential(3, 64, nn.Unflatten(1, (1, 8, 8))), sequential(64, 1), Pictures(), out=tmp_path)
    assert [*shaped.source.tensors] == ["sample"] and shaped.generator_arguments == ("latent",)
    named = trainer(Pictures(), tmp_path, sample="image", d=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 1)))
    assert [*named.source.tensors] == ["image", "y"]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK", "LA", "I;16", "I", "F"])
def test_pictures_of_any_mode_are_channels_first(mode):
    image = Image.new("RGB", (6, 4), (200, 20, 20)).convert(mode) if mode != "I;16" else Image.new(mode, (6, 4), 7000)
    shape = {"1": 1, "L": 1, "I;16": 1, "I": 1, "F": 1, "RGBA": 4, "LA": 4}.get(mode, 3), 4, 6
    tensor = as_tensor(image, "x", "")
    assert tuple(tensor.shape) == shape
    assert tensor.dtype == {"I;16": torch.uint16, "I": torch.int32, "F": torch.float32}.get(mode, torch.uint8)
    if mode == "I;16":
        assert {*tensor.flatten().tolist()} == {7000}


class Unsized(Dataset):
    def __getitem__(self, row):
        return torch.zeros(1, 8, 8)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (iter([1]), "ends after one epoch"),
        (["text"] * 4, "sample 0 is a str"),
        (DataLoader(Pictures(), batch_size=None), "batch_size=None"),
        (3, "DataLoader"),
        (Unsized(), "with a length"),
        ("my images", r"pg\.train\('own', .*my images"),
        (Path("images"), r"pg\.train\('own'"),
    ],
)
def test_data_that_is_none_of_them_is_one_line(data, words, tmp_path):
    with pytest.raises(pg.ParaganError, match=words) as raised:
        trainer(data, tmp_path)
    assert "\n" not in str(raised.value)


class Broken(Pictures):
    def __getitem__(self, row):
        return super().__getitem__(row) if row == 0 else {}["absent"]


def test_an_error_of_a_data_set_names_the_sample(tmp_path):
    with pytest.raises(DataError, match=r"sample \d+ raised KeyError: 'absent' \(.*test_program_datasets.py"):
        trainer(Broken(), tmp_path).run()


def test_batch_norm_and_one_sample_is_one_line_with_a_cure(tmp_path):
    class Normed(Unconditional):
        def __init__(self):
            super().__init__()
            self.layer = nn.Sequential(nn.Linear(3, 64), nn.BatchNorm1d(64))

    data = {"x": torch.rand(8, 1, 8, 8)}
    for settings in ({"train.batch": 1}, {"train.batch": 2, "g.micro_batches": 2}):
        with pytest.raises(ConfigError, match=r"train\.batch") as raised:
            trainer(data, tmp_path, Normed, lambda: sequential(64, 1), settings={**SETTINGS, **settings}).run()
        assert "\n" not in str(raised.value)


class Draws(Dataset):
    """Noise of the global generators. holds: something of the data set."""

    def __init__(self, holds=None):
        self.holds = holds

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"x": torch.rand(1, 8, 8) + np.random.rand() + random.random(), "y": row % 2}


def test_generators_are_saved_once_for_a_batch_and_seeded_for_each_sample(tmp_path, monkeypatch):
    source = trainer(Draws(), tmp_path).source
    calls = []
    for name in ("preserved_globally", "seed_host"):
        original = getattr(rng, name)
        monkeypatch.setattr(rng, name, lambda *words, _name=name, _of=original: (calls.append(_name), _of(*words))[1])
    rows = np.zeros(5, np.int64)
    drawn = source.fetch(rows, rows)["x"]
    assert calls == ["preserved_globally"] + ["seed_host"] * 5
    assert len(drawn.flatten(1).sum(1).unique()) == 1


@pytest.mark.parametrize("holds", [lambda: threading.Lock(), lambda: open(__file__), lambda: (row for row in "ab")])  # noqa: SIM115
def test_what_processes_cannot_share_is_read_in_the_training_process(holds, tmp_path):
    held = holds()
    source = trainer(Draws(held), tmp_path).source
    assert source.num_processes(2) == 0
    assert "training process" in source.notices[-1] and "cannot pickle" in source.notices[-1]
    getattr(held, "close", str)()
    assert trainer(Draws((np.zeros(3), lambda: 3)), tmp_path).source.num_processes(2) == 2


def test_processes_are_for_samples_that_take_long(tmp_path):
    class Slow(Draws):
        def __getitem__(self, row):
            time.sleep(0.002)
            return super().__getitem__(row)

    assert trainer(Draws(), tmp_path).source.num_processes(None) == 0
    assert trainer(Slow(), tmp_path).source.num_processes(None) > 0
    loaders = (DataLoader(Draws(), num_workers=3), DataLoader(Slow(), num_workers=0))
    assert [trainer(loader, tmp_path).source.num_processes(None) for loader in loaders] == [3, 0]
