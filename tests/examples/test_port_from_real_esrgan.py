"""Real-ESRGAN's second stage by hand and its port: equal weights in float64, resumed too, in fewer lines."""

import pytest

from tests.examples.ported_loops import assert_page_counts_lines, distance, has_changed
from tests.tiny_run import newest


@pytest.mark.slow
def test_real_esrgan_port_equals_the_loop_by_hand(example, tmp_path, monkeypatch):
    """Both stop after 10 of 20 steps and resume from their checkpoints."""
    port = example("port_from_real_esrgan")
    monkeypatch.setattr(port, "STEPS", 10)
    port.main(tmp_path)
    monkeypatch.setattr(port, "STEPS", 20)
    (g, d, _), average, _ = port.main(tmp_path)
    checkpoint = newest(tmp_path / "run")
    assert distance(g, checkpoint / "g.safetensors") <= 1e-12
    assert distance(d, checkpoint / "d.safetensors") <= 1e-12
    assert distance(average, checkpoint / "g.safetensors", "ema/") <= 1e-12
    assert has_changed(g, port.networks()[0]) and has_changed(d, port.networks()[1]) and has_changed(average, g)


def test_real_esrgan_port_is_as_long_as_its_page_says(example):
    assert_page_counts_lines(example("port_from_real_esrgan"), "by_hand")
