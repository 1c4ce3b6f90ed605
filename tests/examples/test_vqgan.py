"""A digit survives its way through sixteen codes."""

import pytest

pytestmark = pytest.mark.slow  # trains for 120 steps; the recipe has its test in unit/recipes


@pytest.fixture(scope="module")
def vqgan(example):
    return example("vqgan")


@pytest.fixture(scope="module")
def trained(vqgan, tmp_path_factory):
    run = vqgan.trainer(steps=120, out=tmp_path_factory.mktemp("vqgan"), settings={"every.log_steps": 20}).run()
    return run, *vqgan.reconstructed(run.generator)


def test_vqgan_reconstructs_held_out_digits(trained):
    _, digits, again, _ = trained
    missed, spread = (digits - again).abs().mean(), (digits - digits.mean(0)).abs().mean()
    assert missed < spread / 2


def test_vqgan_uses_the_codebook(vqgan, trained):
    tokens = trained[3]
    assert tokens.shape[1:] == (4, 4)
    assert tokens.unique().numel() >= vqgan.CODES / 4


def test_vqgan_discriminator_begins_after_a_third(trained):
    steps = trained[0].records("step")
    assert ["g/balancer/adversarial" in step for step in steps] == [step["step"] > 40 for step in steps]


def test_vqgan_gradients_pass_straight_through_the_codebook(vqgan, trained):
    net = vqgan.Autoencoder()
    made = net(trained[1][:4])
    made.images.sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in net.encoder.parameters())
    assert net.codes.grad is None  # the codes learn by their own term
    assert set(made.extra) == {"codebook", "commitment"}
