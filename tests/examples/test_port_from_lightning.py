"""Lightning's manual optimisation and its port: equal weights in float64, in fewer lines."""

import torch

from tests.examples.ported_loops import assert_page_counts_lines, distance, has_changed
from tests.tiny_run import newest


def test_lightning_port_equals_manual_optimisation(example, tmp_path):
    port = example("port_from_lightning")
    module, generator = port.main(tmp_path)
    assert distance(module.generator, newest(tmp_path) / "g.safetensors") <= 1e-12
    assert distance(module.discriminator, newest(tmp_path) / "d.safetensors") <= 1e-12
    assert has_changed(module.generator, port.networks()[0])
    assert generator(torch.zeros(3, port.LATENT).double()).shape == (3, 2)


def test_lightning_port_is_as_long_as_its_page_says(example):
    assert_page_counts_lines(example("port_from_lightning"), "ManualGAN")
