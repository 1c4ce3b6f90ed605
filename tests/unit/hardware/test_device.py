"""Which device a worker trains on, by name. What an accelerator would do is told by one that is made up."""

import pytest
import torch

from paragan.core.errors import ConfigError
from paragan.hardware import device


@pytest.mark.parametrize("name", ["auto", "cpu", "0", "7"])
def test_without_an_accelerator_all_are_the_cpu(name, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert device.device_from_option(name) == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "index"), [("cpu", None), ("0", 0), ("1", 1), ("2", 0), ("5", 1)], ids=["cpu", "0", "1", "2", "5"]
)
def test_numbers_go_round(name, index, monkeypatch):
    taken = []
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch.accelerator, "set_device_index", taken.append)
    expected = torch.device("cpu") if index is None else torch.device("cuda", index)
    assert device.device_from_option(name) == expected and taken == ([] if index is None else [index])


@pytest.mark.parametrize("name", ["", "gpu", "-1", "1.5"])
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError, match="device must be auto, cpu or a number"):
        device.device_from_option(name)
