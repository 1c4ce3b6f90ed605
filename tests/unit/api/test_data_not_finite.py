"""NaN and infinity in samples: the sample is named, not a network, and its updates are skipped."""

from types import MappingProxyType

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import Dataset

import paragan as pg
from paragan.core.errors import DataError, DivergedError
from paragan.core.not_finite import rows_not_finite
from paragan.core.source import DerivedSource, Source, TensorSpec
from paragan.datasets import folder
from paragan.datasets.base.program_data import DatasetSource
from paragan.datasets.base.samples import SampleForm
from paragan.evaluation.tensor_images import image_range
from paragan.loading.iterable_stream import IterableStream
from paragan.loading.loader import Loader
from paragan.loading.pipeline import Pipeline
from paragan.loading.subset import SubsetSource
from tests.prepared_shards import image_folder
from tests.tiny_run import newest
from tests.unit.api.test_networks_of_the_field import SETTINGS, D, G, data, trainer

CPU = torch.device("cpu")
ROWS = 32
BAD = 23


def row_of(number, value):
    x = torch.full((6,), float(number))
    x[3] = value if number == BAD else 0.5
    return {"x": x}


ROWS_WITH_NAN = [row_of(row, torch.nan) for row in range(ROWS)]


class Rows(Dataset):
    def __init__(self, value):
        self.value = value

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return row_of(row, self.value)


class Files(Source):
    """A source of files, which says where a sample comes from."""

    tensors = MappingProxyType({"x": TensorSpec((6,), torch.float32)})
    fingerprint = "files"

    def __len__(self):
        return ROWS

    def fetch(self, indices, places=None, seed=0):
        return {"x": torch.stack([row_of(int(row), torch.inf)["x"] for row in indices])}

    def where(self, row):
        return f"table.csv, line {row + 2}"


class Logarithm(DerivedSource):
    """Images whose logarithm is infinite where they are black."""

    fingerprint = "logarithm"

    def __init__(self, source):
        super().__init__(source)
        self.tensors = {"x": TensorSpec(source.shape, torch.float32)}

    def decode(self, encoded, rows, places=None, seed=0):
        return {"x": self.source.decode(encoded, rows, places, seed)["image"].float().log()}


def epochs(bad_epoch, value=torch.nan):
    return lambda epoch: (row_of(row, value if epoch == bad_epoch else 0.0) for row in range(ROWS))


class Mixed(nn.Module):
    """A generator with batch norm of torch, that a NaN in `frames` reaches."""

    latent = 3

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3 + 6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, z, frames):
        return self.layers(torch.cat([z, frames], 1))


class Normed(D):
    """A discriminator with batch norm and spectral norm of torch."""

    def __init__(self):
        super().__init__(nn.utils.parametrizations.spectral_norm)
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return super().forward(self.norm(x))


SCHEMES = ["synchronous", "shared_fakes", "extragradient", "asynchronous"]


def frames_with_one_nan(rows=64, bad=17):
    draws = torch.Generator().manual_seed(0)
    held = {"x": torch.randn(rows, 6, generator=draws), "frames": torch.randn(rows, 6, generator=draws)}
    held["frames"][bad, 2] = torch.nan
    return held


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_nan_in_an_input_of_g_is_named_and_statistics_stay_finite(tmp_path, capsys, scheme):
    settings = {"train__batch": 8, "train__kimg": 0.128, "scheme__name": scheme}
    run = trainer(Mixed, Normed, tmp_path, frames_with_one_nan(), **settings).run()
    printed = capsys.readouterr().err
    assert printed.count("frames is not finite in 1 of 64 samples, number 17") == 1 == printed.count("not finite in")
    assert run.is_finished and "g: updates skipped" in printed and "not finite: 1" in printed
    assert "lower the learning rate" not in printed
    for name in ("g", "d"):
        saved = load_file(newest(tmp_path) / f"{name}.safetensors")
        assert all(value.isfinite().all() for value in saved.values() if value.is_floating_point())
        tracked = [value for key, value in saved.items() if key.startswith("net/") and "num_batches" in key]
        assert tracked and all(int(value) > 0 for value in tracked)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (Rows(torch.nan), f"x of sample {BAD}"),
        (Rows(-torch.inf), f"x of sample {BAD}"),
        (epochs(0), f"x of sample {BAD} of epoch 0"),
        (epochs(1), f"x of sample {BAD} of epoch 1"),
        (Files(), f"x of table.csv, line {BAD + 2}"),
        ({"x": torch.stack([row["x"] for row in ROWS_WITH_NAN])}, "x"),
        ({"x": [row["x"] for row in ROWS_WITH_NAN]}, "x"),
        ({"x": np.stack([row["x"].numpy() for row in ROWS_WITH_NAN])}, "x"),
    ],
    ids=["Dataset", "infinite", "iterable", "second epoch", "file", "tensor", "list", "array"],
)
def test_a_sample_that_is_not_finite_is_named_and_the_run_goes_on(tmp_path, capsys, data, name):
    run = trainer(G(), D(), tmp_path, data, train__kimg=0.08).run()
    printed = capsys.readouterr().err
    assert run.is_finished and printed.count(f"data: {name} is not finite") == 1
    assert printed.count("is not finite") == 1
    assert "skipped, because their gradients were not finite" in printed


def test_a_run_that_skips_every_update_names_the_data_at_its_end(tmp_path):
    with pytest.raises(DivergedError, match=f"x of sample {BAD} is not finite") as caught:
        trainer(G(), D(), tmp_path, Rows(torch.nan), train__batch=ROWS, train__kimg=4 * ROWS / 1000).run()
    assert "learning rate" not in str(caught.value)


def test_held_out_samples_that_are_not_finite_are_named_and_no_divergence(tmp_path):
    with pytest.raises(DataError, match=f"x of sample {BAD} is not finite"):
        pg.Trainer(G(), D(), Rows(0.0), held_out=Rows(torch.nan), settings=SETTINGS, out=tmp_path).run()


@pytest.mark.parametrize("held_out", [Files(), SubsetSource(Files(), np.arange(ROWS))], ids=["source", "subset"])
def test_held_out_source_that_is_not_finite_is_named_held_out(tmp_path, held_out):
    with pytest.raises(DataError, match=r"^held_out: x of .*table\.csv, line 25 is not finite"):
        pg.Trainer(G(), D(), Rows(0.0), held_out=held_out, settings=SETTINGS, out=tmp_path).run()


def test_a_source_of_both_splits_has_the_name_of_each(tmp_path):
    source = Files()
    both = pg.Trainer(G(), D(), source, held_out=source, settings=SETTINGS, out=tmp_path)
    assert (both.source.argument, both.held_out.argument, source.argument) == ("data", "held_out", "data")


@pytest.mark.parametrize("depth", [0, 3])
def test_threads_that_read_ahead_name_the_sample(depth):
    loader = Loader(Files(), 4, 0, CPU)
    stream = Pipeline(loader, depth, 1, 2) if depth else loader
    with pytest.raises(DataError, match=r"table\.csv, line 25"):
        [next(stream) for _ in range(8)]
    stream.close()


def test_subsets_name_the_sample_of_the_whole_data():
    loader = Loader(SubsetSource(Files(), np.arange(BAD - 1, BAD + 2)), 3, 0, CPU)
    with pytest.raises(DataError, match=r"table\.csv, line 25"):
        next(loader)


def test_what_is_computed_of_images_names_their_file(tmp_path):
    image_folder(tmp_path / "images", side=8)
    images = folder.source(folder.Options(path=str(tmp_path / "images"), size=8), "train")
    black = torch.zeros(1, *images.shape)
    images.decode = lambda encoded, rows, *rest: {
        "image": torch.cat([torch.ones_like(black)] * (len(rows) - 1) + [black])
    }
    loader = Loader(Logarithm(images), 4, 0, CPU)
    last = int(loader.rows_at(0)[0][-1])
    with pytest.raises(DataError) as caught:
        next(loader)
    assert images.where(last) in str(caught.value) and "images" in images.where(last)


def test_ranks_of_an_iterable_name_their_samples(tmp_path):
    source = trainer(G(), D(), tmp_path, epochs(0)).source
    first = IterableStream(source, 8, CPU, (0, 4))
    second = IterableStream(source, 8, CPU, (4, 4))
    [next(first) for _ in range(4)]
    with pytest.raises(DataError, match=f"sample {BAD} of epoch 0"):
        [next(second) for _ in range(4)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_every_number_format_is_looked_at(dtype, value):
    values = torch.zeros(5, 2, 3, dtype=dtype)
    assert rows_not_finite(values) == []
    values[3, 1, 2] = value
    values[1, 0, 0] = value
    assert rows_not_finite(values) == [1, 3]


def test_large_values_and_whole_numbers_are_finite():
    assert rows_not_finite(torch.full((4, 1000), torch.finfo(torch.float32).max)) == []
    assert rows_not_finite(torch.ones(4, dtype=torch.uint8)) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_data_that_is_not_finite_is_named_before_a_network_is(tmp_path, value):
    held = data()
    held["x"][[3, 17], 2] = value
    with pytest.raises(DataError, match=r"data: x is not finite in 2 of 32 samples, number 3, 17, at \[2\]; leave"):
        trainer(G(), D(), tmp_path, held)


@pytest.mark.parametrize(("values", "limits"), [([-1, 1, torch.nan], (-1, 1)), ([torch.inf, 0, 1], (0, 1))])
def test_range_of_images_is_that_of_the_finite_values(values, limits):
    x = torch.tensor(values).repeat(64)[:64].view(1, 1, 8, 8).repeat(4, 1, 4, 4)
    assert image_range(DatasetSource([{"x": sample} for sample in x], SampleForm()), "x") == limits
    assert image_range(DatasetSource([{"x": x[0] * torch.nan}] * 4, SampleForm()), "x") is None
