"""Discs become squares in the other colour, where they were, and come back."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def trained(example):
    return example("cyclegan").main(steps=150)


def centre(images):
    """(N, 2): where what is not grey has its weight, in pixels."""
    ink, axis = images.abs().amax(1), torch.arange(images.shape[-1], dtype=torch.float32)
    return torch.stack([(ink.sum(1) * axis).sum(1), (ink.sum(2) * axis).sum(1)], 1) / ink.sum((1, 2))[:, None]


def shades(images, where):
    """Mean of each channel, 0 to 1, over the ink of `where`."""
    ink = (where.amax(1, keepdim=True) > 0).float()
    return ((images + 1) / 2 * ink).sum((0, 2, 3)) / ink.sum()


@pytest.mark.slow
def test_cyclegan_translation_changes_the_colour_and_back(trained):
    discs, squares, back = trained
    red, _, blue = shades(squares, discs)
    assert blue > 0.6 > 0.4 > red
    red, _, blue = shades(back, discs)
    assert red > 0.6 > 0.4 > blue


@pytest.mark.slow
def test_cyclegan_translation_keeps_the_position(trained):
    discs, squares, _ = trained
    moved = (centre(discs) - centre(squares)).norm(dim=1)
    assert moved.median() < 0.5
    assert moved.max() < 1.5


def test_cyclegan_cycle_loss_is_a_term_of_the_generator(example, capsys):
    example("cyclegan").main(steps=1)
    assert "g/loss/cycle" in capsys.readouterr().out
