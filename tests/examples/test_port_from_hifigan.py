"""HiFi-GAN's loop by hand and its port: equal weights in float64, resumed too, in fewer lines."""

import inspect

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny_run import newest


@pytest.fixture
def port(example):
    return example("port_from_hifigan")


def distance(nets, folder):
    """Largest difference of a weight, for both players; nets: by hand."""
    found = {side: load_file(newest(folder / "run") / f"{side}.safetensors") for side in "gd"}
    pairs = {"g": {f"net/{key}": value for key, value in nets[0].state_dict().items()}}
    pairs["d"] = {}
    for name, net in zip(("mpd", "msd"), nets[1:], strict=True):
        pairs["d"] |= {f"net/{name}.{key}": value for key, value in net.state_dict().items()}
    return max(
        float((value - found[side][key]).abs().max()) for side, values in pairs.items() for key, value in values.items()
    )


def test_hifigan_port_equals_the_loop_by_hand(port, tmp_path, monkeypatch):
    """Both stop after 10 of 20 steps and resume from their checkpoints."""
    monkeypatch.setattr(port, "STEPS", 10)
    port.main(tmp_path)
    monkeypatch.setattr(port, "STEPS", 20)
    nets = port.main(tmp_path)[0]
    start = port.networks()
    assert distance(nets, tmp_path) <= 1e-12
    for net, before in zip(nets, start, strict=True):
        assert any(not torch.equal(a, b) for a, b in zip(net.parameters(), before.parameters(), strict=True))


def test_hifigan_port_is_less_than_half_as_long(port):
    by_hand, ported = (len(inspect.getsource(f).splitlines()) for f in (port.by_hand, port.ported))
    assert ported < by_hand / 2
