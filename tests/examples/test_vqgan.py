"""A digit survives its way through sixteen codes; a killed run is an uninterrupted one."""

from __future__ import annotations

import random

import pytest

from tests.examples.stopped_runs import Killed, assert_equal_runs, assert_killed_is_straight, killed_at

STEPS = 12
KILLED_AT = sorted(random.Random(20261124).sample(range(2, STEPS), 3))
SMALL = {"train.batch": 4, "train.kimg": STEPS * 4 / 1000, "every.save_kimg": 0.016}


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


def test_vqgan_interrupted_at_three_steps_equals_the_uninterrupted_run(vqgan, tmp_path):
    settings = {"steps": 1, "settings": SMALL}  # D begins at step 3
    vqgan.trainer(out=tmp_path / "straight", **settings).run()
    for position in KILLED_AT:
        made = killed_at(vqgan.trainer(out=tmp_path / "killed", **settings), position, batch=4)
        with pytest.raises(Killed):
            made.run()
    vqgan.trainer(out=tmp_path / "killed", **settings).run()
    assert_equal_runs(tmp_path / "straight", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_vqgan_killed_at_three_steps_equals_the_uninterrupted_run(tmp_path, ranks):
    assert_killed_is_straight("vqgan", tmp_path, STEPS, KILLED_AT, ranks)
