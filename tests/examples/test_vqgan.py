"""A digit survives its way through sixteen codes."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def vqgan(example):
    return example("vqgan")


@pytest.fixture(scope="module")
def trained(vqgan):
    return vqgan.main(steps=120)


def test_vqgan_reconstructs_held_out_digits(trained):
    digits, again, _ = trained
    missed, spread = (digits - again).abs().mean(), (digits - digits.mean(0)).abs().mean()
    assert missed < spread / 2


def test_vqgan_uses_the_codebook(vqgan, trained):
    tokens = trained[2]
    assert tokens.shape[1:] == (4, 4)
    assert tokens.unique().numel() >= vqgan.CODES / 4


def test_vqgan_gradients_pass_straight_through_the_codebook(vqgan, trained):
    net = vqgan.Autoencoder()
    made = net(None, None, trained[0][:4])
    made.images.sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in net.encoder.parameters())
    assert net.codes.grad is None  # the codes learn by their own term
    assert set(made.extra) == {"codebook", "commitment"}
