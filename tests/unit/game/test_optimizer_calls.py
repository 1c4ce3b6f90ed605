"""Torch's optimisers step without torch's compiler where nothing is compiled, bit for bit as with it."""

import subprocess
import sys

import pytest
import torch

from paragan.game import optimizer_calls
from paragan.game.optimizer_calls import step_if
from paragan.game.policy import Policy
from paragan.parallel.base.backward_pass import backward
from tests.processes import environment

FORKS = """
import os, sys
import torch
from paragan.cli.main import main
for code in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        exec(code)
        sys.stdout.flush()
        os._exit(0)
    print("ended:", os.waitpid(pid, 0)[1], flush=True)
"""
TRAINS = """
words = "data.size=8 model.width=4 train.batch=8 train.kimg=0.016 evaluation.features=null writers=[jsonl]"
code = main(["train", "digits", *words.split(), "--out", {out!r}, *{words}])
print(code, sorted({{"torch._dynamo", "sympy", "torch.distributed.tensor"}} & set(sys.modules)))
"""
OF_TORCH = ([], ["scheme=extragradient"], ["g.precision=bf16", "g.optimizer=SGD"])
PURE_D = ["d.precision=pure"]
METHODS = """
from paragan.game import optimizer_calls
optimizer_calls.avoid_compiler()
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([weight], lr=0.1)
plain = torch.optim.Optimizer.zero_grad.__wrapped__
light = plain.__dynamo_disable
optimizer.zero_grad()
assert plain.__dynamo_disable is light
import torch._dynamo
for _ in range(2):
    optimizer.zero_grad()
assert plain.__dynamo_disable is not light
@torch.compile(backend="eager")
def train(x):
    optimizer.zero_grad()
    (weight * x).sum().backward()
    optimizer.step()
train(torch.ones(2))
print(weight.tolist())
"""


def last_lines_of(codes):
    """The last line that each code prints; each runs in a fork of one process that has imported torch alone."""
    command = [sys.executable, "-c", FORKS, *codes]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=200)
    outputs = ended.stdout.split("ended: 0\n")
    assert len(outputs) == len(codes) + 1, ended.stdout + ended.stderr
    return [text.splitlines()[-1] for text in outputs[:-1]]


@pytest.fixture(scope="module")
def last_lines(tmp_path_factory):
    """Of the daily cases below, by words or code."""
    folder = tmp_path_factory.mktemp("runs")
    trains = {str(words): training(folder / str(n), words) for n, words in enumerate((*OF_TORCH, PURE_D))}
    codes = {**trains, METHODS: METHODS}
    return dict(zip(codes, last_lines_of(codes.values()), strict=True))


def training(folder, words):
    return TRAINS.format(out=str(folder), words=words)


@pytest.mark.parametrize("words", OF_TORCH)
def test_training_imports_neither_the_compiler_nor_sympy(last_lines, words):
    assert last_lines[str(words)] == "0 []"


def weights(kind, step, **arguments):
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    optimizer = Policy(kind=kind, lr=0.1, arguments=arguments).optimizer(net.named_parameters())
    for number in range(4):
        optimizer.zero_grad()
        net(torch.full((5, 3), float(number))).square().sum().backward()
        step(optimizer)
    return [weight.detach().clone() for weight in net.parameters()]


@pytest.fixture
def without_compiler(monkeypatch):
    """As in a process that has not imported it: other tests may have."""
    monkeypatch.setattr(optimizer_calls, "_has_compiler", lambda: False)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.Adam, {"fused": False, "foreach": False, "amsgrad": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.RMSprop, {}),
        (torch.optim.Adafactor, {}),
    ],
)
def test_a_step_without_the_compiler_is_the_step_bit_for_bit(without_compiler, monkeypatch, kind, arguments):
    optimizer_calls._plain_method.cache_clear()
    expected = weights(kind, lambda optimizer: optimizer.step(), **arguments)
    monkeypatch.setattr(kind, "step", _not_called(kind.step))
    torch.testing.assert_close(
        weights(kind, lambda optimizer: step_if(torch.tensor(True), optimizer), **arguments), expected, rtol=0, atol=0
    )


def _not_called(step):
    def call(*arguments):
        raise AssertionError("torch's wrapper, which imports the compiler, was called")

    call.__wrapped__ = step
    return call


def test_an_optimiser_that_is_not_of_torch_steps_in_a_new_process(last_lines):
    assert last_lines[str(PURE_D)].startswith("0 ")


@pytest.mark.slow
@pytest.mark.parametrize("words", [["g.precision=pure"], ["g.optimizer=lamb"]])
def test_other_optimisers_that_are_not_of_torch_step_in_a_new_process(tmp_path, words):
    (line,) = last_lines_of([training(tmp_path / "run", words)])
    assert line.startswith("0 ")


def test_hooks_of_a_step_are_called(without_compiler):
    calls = []

    def step(optimizer):
        if not calls:
            optimizer.register_step_post_hook(lambda *_: calls.append(1))
        step_if(torch.tensor(True), optimizer)

    weights(torch.optim.Adam, step)
    assert len(calls) >= 1


def test_methods_are_those_of_torch_again_once_the_compiler_is_there(last_lines):
    assert last_lines[METHODS].startswith("[0.8999")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_a_given_gradient_arrives_unchanged(dtype):
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    gradient = torch.randn(2, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    backward([2 * x], [gradient], ranks=1)
    torch.testing.assert_close(x.grad, 2 * gradient, rtol=0, atol=0)
