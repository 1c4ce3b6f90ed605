"""Trace of a forward: which line of it reads the value of a tensor."""

from pathlib import Path
from types import FunctionType, MethodType

import pytest
import torch
from torch import nn

import paragan
from paragan.extensions.verify.forward_trace import ForwardTrace
from paragan.game.network import CalledNetwork


class Net(nn.Module):
    def forward(self, x):
        return x * x.mean().item()


def line_in(file: str) -> str:
    """Return the line that a trace names if this file holds the forward, which reads a value in line 6."""
    net = Net()
    code = Net.forward.__code__.replace(co_filename=file, co_firstlineno=5)
    net.forward = MethodType(FunctionType(code, {}), net)
    trace = ForwardTrace(net)
    with trace.recording():
        CalledNetwork(module=net)(torch.ones(2, 1))
    return trace.value_access


@pytest.mark.parametrize("file", ["layers/mine.py", "models/biggan.py", "game/mine.py", "extensions/verify/mine.py"])
def test_a_value_read_by_paragan_itself_names_no_line(file):
    assert line_in(str(Path(paragan.__file__).resolve().parent / file)) == ""


@pytest.mark.parametrize("file", ["<string>", "/opt/lib/python3/site-packages/nets/blocks.py"])
def test_a_value_read_by_a_library_names_no_line(file):
    assert line_in(file) == ""


@pytest.mark.parametrize("file", ["/home/me/nets.py", "/home/me/paragan/layers/nets.py"])
def test_a_value_read_by_the_user_names_file_and_line(file):
    assert line_in(file) == "nets.py:6"
