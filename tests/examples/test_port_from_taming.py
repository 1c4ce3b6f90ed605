"""VQGAN's loop by hand and its port: equal weights in float64, resumed too, in fewer lines."""

from tests.examples.ported_loops import assert_page_counts_lines, distance, has_changed
from tests.tiny_run import newest


def test_taming_port_equals_the_loop_by_hand(example, tmp_path, monkeypatch):
    """Both stop after 10 of 20 steps, of which 2 with D, and resume from their checkpoints."""
    port = example("port_from_taming")
    monkeypatch.setattr(port, "STEPS", 10)
    port.main(tmp_path)
    monkeypatch.setattr(port, "STEPS", 20)
    (g, d, _), _ = port.main(tmp_path)
    checkpoint = newest(tmp_path / "run")
    assert distance(g, checkpoint / "g.safetensors") <= 1e-12
    assert distance(d, checkpoint / "d.safetensors") <= 1e-12
    assert has_changed(g, port.networks()[0]) and has_changed(d, port.networks()[1])


def test_taming_port_is_as_long_as_its_page_says(example):
    assert_page_counts_lines(example("port_from_taming"), "by_hand")
