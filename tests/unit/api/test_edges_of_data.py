"""Data at the edge of what a run takes: beyond float32, empty, labels (N, 1), rows for terms of images."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import paragan as pg
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.samples import SampleForm
from paragan.datasets.base.tensor_source import TensorSource
from tests.unit.api.test_labels_out_of_range import data as labelled_rows, run_on
from tests.unit.api.test_trainer import trainer


def wide(value=1e300, count=40):
    rows = np.zeros((count, 2))
    rows[3, 1] = value
    return rows


def notices(data):
    return TensorSource(data, Padding(), torch.float32).notices


def table(value):
    rows = np.zeros(40, dtype=[("a", "f8"), ("b", "f8")])
    rows["b"][3] = value
    return {"x": rows}


@pytest.mark.parametrize(
    ("data", "place"),
    [({"x": wide()}, "at [1]"), (table(1e300), "column 'b'"), ({"x": list(torch.from_numpy(wide()))}, "at [1]")],
)
def test_a_number_beyond_the_format_of_the_weights_is_said_with_its_place(data, place):
    (line,) = [text for text in notices(data) if "number 3" in text]
    assert "1e+300, beyond float32" in line and place in line and "NaN" not in line


def test_an_empty_cell_is_still_nan():
    (line,) = [text for text in notices(table(np.nan)) if "number 3" in text]
    assert "is not finite" in line and "column 'b'" in line and "beyond float32" not in line


def test_many_numbers_beyond_the_format_are_refused():
    with pytest.raises(pg.DataError, match=r"has -1e\+300, beyond float32, in 40 of 40 samples"):
        notices({"x": np.full(40, -1e300)})


LABEL_N1 = torch.zeros(8, 1, dtype=torch.int64)


def test_labels_of_another_axis_are_said():
    source = TensorSource({"x": torch.zeros(8, 2), "label": LABEL_N1}, Padding(), torch.float32)
    assert source.tensors["label"].shape == () and any("(N, 1)" in text for text in source.notices)
    form, specs, lines = SampleForm(dtype=torch.float32).of_first({"x": torch.zeros(2), "label": LABEL_N1[0]})
    assert specs["label"].shape == () and any("(N, 1)" in text for text in lines)
    assert form.stacked([(0, {"x": torch.zeros(2), "label": LABEL_N1[0]})], specs)["label"].shape == (1,)
    assert not any("(N, 1)" in text for text in notices({"x": torch.zeros(8, 2), "label": LABEL_N1[:, 0]}))


@pytest.mark.parametrize("data", [{"x": torch.zeros(0, 2)}, {"x": []}, {}, {"x": torch.tensor(3.0)}])
def test_no_samples_are_said(data):
    with pytest.raises(pg.DataError, match=r"there are no samples \(.*\); pass"):
        notices(data)


@pytest.mark.parametrize("held_out", [{"point": torch.zeros(0, 2)}, [], lambda epoch: [], {"point": ["a"] * 3}])
def test_problems_of_held_out_samples_name_the_argument(tmp_path, held_out):
    with pytest.raises(pg.DataError, match=r"^held_out: (?!.*data:)"):
        trainer(tmp_path / "run", {"point": torch.zeros(8, 2)}, held_out=held_out)


@pytest.mark.parametrize("held_out", [wide(np.nan), wide(np.inf, 5), wide(-np.inf, 8)])
def test_held_out_samples_without_finite_numbers_are_refused_before_the_run(tmp_path, held_out):
    with pytest.raises(pg.DataError, match=r"^held_out: point .* number 3, "):
        trainer(tmp_path / "run", {"point": torch.zeros(8, 2)}, held_out={"point": held_out})


class Rows(Dataset):
    """Rows as `labelled_rows`, of which number 3 has another point; an exception is raised."""

    def __init__(self, spoiled):
        self.columns = labelled_rows()
        self.spoiled = spoiled

    def __len__(self):
        return len(self.columns["label"])

    def __getitem__(self, number):
        row = {name: values[number] for name, values in self.columns.items()}
        if number == 3 and isinstance(self.spoiled, Exception):
            raise self.spoiled
        return {**row, "point": self.spoiled} if number == 3 else row

    def epoch(self, number):
        return (self[row] for row in range(len(self)))


SPOILED = {"nan": torch.tensor([0, torch.nan]), "shape": torch.zeros(3), "type": {"a": 1}, "unread": OSError("gone")}
KINDS = {"rows": Rows, "stream": lambda value: Rows(value).epoch, "loader": lambda value: DataLoader(Rows(value))}


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("kind", KINDS)
def test_problems_of_held_out_samples_that_are_read_later_name_the_argument(tmp_path, kind, spoiled):
    with pytest.raises(pg.DataError, match=r"^held_out: (?!.*data:)"):
        run_on(tmp_path, labelled_rows(), held_out=KINDS[kind](SPOILED[spoiled]))


@pytest.mark.parametrize("is_cast", ["both", "held out", "none"])
def test_notices_about_held_out_samples_are_printed_where_training_has_not_the_same(tmp_path, capsys, is_cast):
    rows = labelled_rows()
    narrow_rows = {**rows, "point": rows["point"].float()}
    held_out = rows if is_cast == "none" else narrow_rows
    run_on(tmp_path, narrow_rows if is_cast == "both" else rows, held_out=held_out)
    err = capsys.readouterr().err
    assert err.count("held_out: point of float32 is cast") == (is_cast == "held out")
    assert err.count("data: point of float32 is cast") == (is_cast == "both")


@pytest.mark.parametrize("shape", [(0,), (1, 0, 8)])
@pytest.mark.parametrize("kind", ["array", "list", "stream"])
def test_samples_without_a_number_are_named_before_a_network_is(tmp_path, shape, kind):
    rows = [{"picture": np.zeros(shape)}] * 8
    data = {"array": {"picture": np.zeros((8, *shape))}, "list": rows, "stream": lambda epoch: rows}[kind]
    with pytest.raises(pg.ConfigError, match=r"^data: a sample of picture is of shape \(.*0.*\), without a number"):
        trainer(tmp_path / "run", data, Painter, Viewer, terms=())


@pytest.mark.parametrize("channels", [2, 4])
def test_the_perceptual_term_names_other_channels_than_1_and_3(tmp_path, channels):
    data = {"picture": torch.zeros(8, channels, 8, 8), "low": torch.zeros(8, channels, 8, 8)}
    nets = (lambda: Enlarged(channels), lambda: Viewer(channels * 64))
    perceptual = trainer(tmp_path / "run", data, *nets, settings={"penalties": ["perceptual"]}, terms=())
    with pytest.raises(pg.ConfigError, match=rf"1 or 3 channels, not samples of \({channels}, 8, 8\)"):
        perceptual.run()
    assert not (tmp_path / "run").exists()


class Enlarged(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = nn.Conv2d(channels, channels, 1)

    def forward(self, low):
        return self.layer(low)


@pytest.mark.parametrize("name", ["consistency", "perceptual", "distillation", "path_length", "flow_matching"])
def test_a_term_of_images_is_refused_for_rows(tmp_path, name):
    with pytest.raises(pg.ConfigError, match=rf"penalty {name} needs images \(C, H, W\), not samples of \(2,\)"):
        trainer(tmp_path / "run", settings={"penalties": [name]}, terms=()).run()
    assert not (tmp_path / "run").exists()


class Painter(nn.Module):
    latent = 3

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 64)

    def forward(self, latent):
        return self.layer(latent).view(-1, 1, 8, 8)


class Viewer(nn.Module):
    def __init__(self, inputs=64):
        super().__init__()
        self.layer = nn.Linear(inputs, 1)

    def forward(self, picture):
        return self.layer(picture.flatten(1))


def test_consistency_takes_images_without_labels(tmp_path):
    settings = {"train.batch": 4, "train.kimg": 0.008, "penalties": ["consistency"], "evaluation.features": None}
    data = {"picture": torch.zeros(8, 1, 8, 8, dtype=torch.float64)}
    run = trainer(tmp_path / "run", data, Painter, Viewer, {**settings, "every.log_steps": 1}, terms=()).run()
    assert "d/loss/consistency" in run.history[-1]
