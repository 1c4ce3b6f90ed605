"""Pictures of tensors in sample sheets."""

import math

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.evaluation.fixed_tensors import as_pictures, is_pictured
from tests.unit.api.test_trainer import TINY, Drawn


def test_shapes_that_have_pictures():
    assert all(map(is_pictured, [(3, 8, 8), (1, 8, 4), (1, 512), (1, -1), (2,), (3,), (64,), (65,), (2, 512)]))
    assert not any(map(is_pictured, [(5000,), (0,), (), (3, 512), (1, 8), (4, 8, 8), (3, -1, 8)]))


def test_spectrogram_is_brightest_at_the_frequency_of_the_tone():
    time = torch.arange(1024) / 1024
    tones = torch.stack([torch.sin(2 * math.pi * hertz * time) for hertz in (128, 256)])[:, None]
    pictures = as_pictures(tones)
    bands = pictures.shape[2]
    assert pictures.amax() == 1 and pictures.amin() >= -1
    brightest = bands - 1 - pictures.mean(3)[:, 0].argmax(1)  # low frequencies are at the bottom
    assert brightest.tolist() == [16, 32]


def test_short_wave_has_a_spectrogram():
    assert as_pictures(torch.zeros(2, 1, 9)).shape[:3] == (2, 1, 65)


def test_density_has_points_where_they_are():
    real = torch.stack([torch.linspace(0, 1, 100), torch.linspace(0, 1, 100)], 1)
    made = torch.ones(100, 2)
    found = as_pictures(torch.cat([real, made]))
    assert found.shape == (2, 1, 64, 64)
    assert (found[1] > -1).sum() == 1 and found[1, 0, 6, 57] == 1  # the upper right corner of the range


def test_distributions_have_a_bar_per_column():
    real = torch.tensor([[0.0, 5.0, -1.0], [1.0, 5.0, 1.0]] * 50)
    made = torch.tensor([[0.0, 5.0, torch.nan]] * 100)
    found = as_pictures(torch.cat([real, made]))
    assert found.shape == (2, 1, 64, 18)
    lit = [[(picture[0, :, 6 * column] > -1).nonzero().flatten().tolist() for column in range(3)] for picture in found]
    assert lit == [[[6, 57], [57], [6, 57]], [[57], [57], [63]]]
    assert torch.equal(found[:, :, :, 0], found[:, :, :, 5])


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))
        self.drop = nn.Dropout()

    def forward(self, small):
        return self.gain * self.drop(small).repeat_interleave(2, 2).repeat_interleave(2, 3)


class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, large):
        return self.gain * large.mean((1, 2, 3))


@pytest.mark.parametrize("rows", [3, 20])
def test_samples_are_g_inputs_the_data_and_what_g_makes_of_these_inputs(tmp_path, rows, monkeypatch):
    seen = []
    monkeypatch.setattr("paragan.writers.images.save_grid", lambda x, path, columns: seen.append((x, columns)))
    data = {"large": torch.rand(rows, 3, 8, 8), "small": torch.rand(rows, 3, 4, 4)}
    run = pg.Trainer(
        Images(),
        Mean(),
        data,
        settings={**TINY, "every.sample_kimg": 0.02, "g.ema": None, "evaluation.features": None},
        out=tmp_path,
    ).run()
    shown = min(rows, 8)
    enlarged = data["small"].repeat_interleave(2, 2).repeat_interleave(2, 3)
    for x, columns in seen:
        assert columns == shown and len(x) == 3 * shown
        assert torch.equal(x[:shown], enlarged[:shown])
        assert torch.equal(x[shown : 2 * shown], data["large"][:shown])
    assert torch.equal(seen[0][0][2 * shown :], enlarged[:shown])  # no dropout
    assert [line["rows"] for line in run.records("samples")] == [["small", "data", "generated"]] * len(seen)


def test_tensors_without_pictures_have_no_samples(tmp_path):
    run = pg.Trainer(
        Drawn(nn.Linear(3, 5000)), nn.Linear(5000, 1), {"row": torch.zeros(9, 5000)}, settings=TINY, out=tmp_path
    ).run()
    assert run.records("samples") == [] and not (tmp_path / "samples").exists()
