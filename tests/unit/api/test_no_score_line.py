"""A run without a score says at its start why, and what to set for one."""

import pytest
import torch
from torch import nn

import paragan as pg


class Drawn(nn.Module):
    latent = 4

    def __init__(self, shape=(3,)):
        super().__init__()
        self.shape = shape
        self.layer = nn.Linear(4, torch.Size(shape).numel())

    def forward(self, latent):
        return self.layer(latent).view(-1, *self.shape)


class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, kind):
        return self.layer(kind)


class Critic(nn.Module):
    def __init__(self, shape=(3,)):
        super().__init__()
        self.layer = nn.Linear(torch.Size(shape).numel(), 1)

    def forward(self, x):
        return self.layer(x.flatten(1)).squeeze(1)


def start_lines(generator, shape, out, capsys, scale=1.0, **settings):
    data = {"x": scale * (2 * torch.rand(32, *shape) - 1), "kind": torch.rand(32, 3)}
    settings = {"train.kimg": 0.016, "train.batch": 16, **settings}
    pg.Trainer(generator, Critic(shape), data, settings=settings, out=out).run()
    printed = capsys.readouterr().out.partition("finished: ")[0]
    return [line for line in printed.splitlines() if line.startswith("score ")]


@pytest.mark.parametrize("shape", [(3,), (1, 64)], ids=["rows", "audio"])
def test_samples_of_latents_alone_have_no_metric_and_the_line_says_so(shape, tmp_path, capsys):
    (line,) = start_lines(Drawn(shape), shape, tmp_path / "run", capsys)
    assert "no metric compares samples other than images without inputs; the report shows" in line


def test_samples_of_inputs_can_be_compared_and_the_line_names_a_metric(tmp_path, capsys):
    (line,) = start_lines(Mapped(), (3,), tmp_path / "run", capsys)
    assert "evaluation.metrics=[l1], for example, compares held-out samples" in line


def test_images_say_their_own_reason(tmp_path, capsys):
    shape = (1, 8, 8)
    (line,) = start_lines(Drawn(shape), shape, tmp_path / "off", capsys, **{"evaluation.features": None})
    assert line == "score     off (evaluation.features=null)"
    (line,) = start_lines(Drawn(shape), shape, tmp_path / "far", capsys, scale=200.0)
    assert "images are scored in [-1, 1]" in line
