"""Compiled networks: the same numbers as those that run as written, and what cannot be compiled is told in a line.

The compiler goes as far as torch's own kernels here ("aot_eager"); only the slow tests have C++ written.
"""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.protocols import Loss
from paragan.core.types import Side
from paragan.game.gan import GAN
from paragan.game.network import CalledNetwork, Calling
from paragan.game.player import Player
from paragan.game.policy import Policy
from paragan.game.prior import Prior
from paragan.game.state import state_of
from paragan.hardware import executors
from paragan.layers.init import initialise
from paragan.layers.spectral_norm import spectral_norm
from paragan.layers.update_once import begin_update
from paragan.losses import hinge
from paragan.models import dcgan
from paragan.parallel import none
from paragan.penalties import gradient_penalty, r1
from paragan.schemes import shared_fakes, synchronous
from tests.laws import small_gan
from tests.laws.small_gan import distance
from tests.tiny_run import train_and_read

CPU, SHAPE, CLASSES = torch.device("cpu"), (1, 8, 8), small_gan.CLASSES
R1, LAZY = r1.Penalty(r1.Options(weight=0.3)), r1.Penalty(r1.Options(weight=0.3, interval=2))
GP = gradient_penalty.Penalty(gradient_penalty.Options(weight=0.3))
MLP = "model={name: mlp, latent: 4, g_widths: [8], d_widths: [8]}"
TINY = (
    *("train.threads=1", "data.size=8", "train.batch=8", "penalties=[{name: r1, weight: 1.0, interval: 3}]"),
    *("augment=null", "evaluation.features=null", "every.sample_kimg=0", "scheme=synchronous", "train.kimg=0.032"),
)


def counters():
    """What the compiler counts; it takes two seconds to import, in every process of tests."""
    return torch._dynamo.utils.counters


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    torch._dynamo.reset()
    counters().clear()
    monkeypatch.setattr(executors, "BACKEND", "aot_eager")


def from_file(module, options):
    def network(side: Side) -> nn.Module:
        net = (module.Generator if side is Side.G else module.Discriminator)(options, SHAPE, CLASSES).double()
        initialise(net, 0, side.value)
        return net

    return network


def game(network, executor, penalties=(), parts=1) -> GAN:
    policy = Policy(kind=torch.optim.Adam, lr=1e-2, arguments={"betas": (0.0, 0.9)}, micro_batches=parts)
    calling = Calling(compiler=executors.call_compiler(executor, CPU))
    g, d = (
        Player(side=side, net=network(side), strategy=none.Strategy(), policy=policy, calling=calling) for side in Side
    )
    prior = Prior(seed=5, latent=getattr(g.net, "latent", small_gan.LATENT), num_classes=CLASSES, dtype=torch.float64)
    return GAN(g=g, d=d, loss=Loss(hinge.d_loss, hinge.g_loss), prior=prior, d_penalties=penalties)


def programs(gan: GAN) -> dict[str, set[tuple[bool, bool]]]:
    """Of each player, what was compiled: whether anything, and whether the weights were differentiated."""
    return {
        seat.side.value: {kind for net in (seat.plain_network, seat.training_network) for kind in net._run._programs}
        for seat in (gan.g, gan.d)
    }


MADE, TRAINED, FROZEN = (False, False), (True, True), (True, False)
BN = from_file(dcgan, dcgan.Options(latent=4, width=4))


@pytest.mark.parametrize(
    ("network", "penalties", "parts", "scheme", "d_programs", "graphs"),
    [
        # D on real, on fakes
        pytest.param(BN, (), 1, synchronous, {TRAINED, FROZEN}, 5, id="batch norm", marks=pytest.mark.slow),
        pytest.param(small_gan.network, (LAZY,), 1, synchronous, {TRAINED, FROZEN}, 4, id="spectral norm, lazy R1"),
        pytest.param(
            small_gan.network, (R1,), 1, synchronous, {FROZEN}, 3, id="R1 at every step", marks=pytest.mark.slow
        ),
        pytest.param(
            small_gan.network, (GP,), 2, shared_fakes.Scheme(), {FROZEN}, 3, id="gradient penalty, parts, shared fakes"
        ),
    ],
)
def test_compiled_is_as_written(network, penalties, parts, scheme, d_programs, graphs):
    written, compiled = (game(network, name, penalties, parts) for name in ("eager", "compile"))
    for gan in (written, compiled):
        small_gan.play(gan, scheme, small_gan.batches())
    for one, other in ((written.g, compiled.g), (written.d, compiled.d)):
        assert distance(dict(one.net.state_dict()), dict(other.net.state_dict())) <= 1e-12
    made = {TRAINED} if scheme is not synchronous else {TRAINED, MADE}
    assert programs(compiled) == {"g": made, "d": d_programs}
    assert counters()["stats"]["unique_graphs"] == graphs and not counters()["graph_break"]


def test_what_is_not_a_turn_runs_as_written():
    net = small_gan.network(Side.D)
    called = CalledNetwork(module=net, calling=Calling(compiler=executors.call_compiler("compile", CPU)))
    called.module.eval()
    called(*small_gan.PROBE[Side.D])
    assert not called._run._programs and counters()["stats"]["unique_graphs"] == 0


def test_autocast_and_layout_stay_the_networks_own():
    seen = []
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()).to(memory_format=torch.channels_last)
    net[1].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    calling = Calling(torch.bfloat16, channels_last=True, compiler=executors.call_compiler("compile", CPU))
    x = torch.randn(2, 1, 8, 8)
    out = CalledNetwork(module=net, calling=calling)(x)
    assert out.dtype is torch.float32 and seen == [torch.bfloat16]
    assert counters()["stats"]["unique_graphs"] == 1
    assert torch.equal(out, CalledNetwork(module=net, calling=Calling(torch.bfloat16, channels_last=True))(x))


def trainer(folder, steps, *words):
    config = read_recipe("digits", [*TINY, MLP, "train.executor=compile", *words, f"train.kimg={steps * 0.008}"])
    return build.trainer(config, folder, print, lambda: False)


def told(run) -> list[dict[str, float]]:
    return train_and_read(run)[0]


def test_a_compiled_run_goes_on_bit_for_bit(tmp_path):
    straight = trainer(tmp_path / "straight", 6)
    expected = told(straight)[4:]
    told(trainer(tmp_path / "stopped", 4))  # stops between two updates with a penalty
    torch._dynamo.reset()
    resumed = trainer(tmp_path / "stopped", 6)
    assert resumed.resume() and told(resumed) == expected
    assert programs(resumed.gan)["d"] == {TRAINED, FROZEN}
    for name, player in straight.players.items():
        one, other = state_of(player)[0].tensors, state_of(resumed.players[name])[0].tensors
        assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def broken(graph, inputs):
    raise RuntimeError("no C++ compiler found\nbut many lines")


def test_failing_compiler_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(executors, "BACKEND", broken)
    words = ["train", "digits", *TINY, MLP, "--out", str(tmp_path / "run")]
    assert main([*words, "train.executor=compile"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "train.executor=compile does not run here" in line and "no C++ compiler" in line
    assert main([*words, "train.executor=eager"]) == 0  # as the line says: in the same folder


def test_second_derivative_of_compiled_code_is_one_line():
    called = CalledNetwork(
        module=small_gan.network(Side.D), calling=Calling(compiler=executors.call_compiler("compile", CPU))
    )
    x, y = small_gan.PROBE[Side.D]
    x = x.clone().requires_grad_()
    with executors.report_compile_errors(), called.frozen():
        (slope,) = torch.autograd.grad(called(x, y).logits_B.sum(), x, create_graph=True)
    with (
        pytest.raises(ConfigError, match="does not currently support double backward"),
        executors.report_compile_errors(),
    ):
        slope.square().sum().backward()


def test_other_errors_stay_what_they_are():
    with pytest.raises(ZeroDivisionError), executors.report_compile_errors():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["d.strategy=zero3"], "strategy zero3"),
        (["g.recompute=true"], "g.recompute"),
        (["scheme=asynchronous"], "scheme asynchronous"),
        (["train.executor=graphs"], "which a CPU does not support; use train.executor=eager"),
        (["grid={shape: 2x2}"], "a grid"),
    ],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, words, found, capsys):
    assert main(["train", "digits", *TINY, MLP, "train.executor=compile", *words, "--out", str(tmp_path / "a")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "train.executor" in line and found in line and "eager" in line
    assert not (tmp_path / "a").exists()


@pytest.mark.slow  # a minute or more of g++, where nothing is cached
def test_written_in_c_it_is_equal_too_and_draws_the_same(monkeypatch):
    monkeypatch.setattr(executors, "BACKEND", "inductor")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.drop = nn.Linear(6, 6).double(), nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(F.silu(self.layer(x)))

    net, x, found = Net(), torch.randn(64, 6, dtype=torch.float64), []
    for calling in (Calling(), Calling(compiler=executors.call_compiler("compile", CPU))):
        torch.manual_seed(3)
        net.zero_grad()
        out = CalledNetwork(module=net, calling=calling)(x)
        out.square().sum().backward()
        found.append({"out": out.detach(), "weight": net.layer.weight.grad.clone()})
    assert distance(*found) <= 1e-12


@pytest.mark.slow  # likewise
def test_written_in_c_spectral_norm_differentiates_with_the_vectors_of_its_forward(monkeypatch):
    """Its vectors change in the forward, so a backward that recomputes one from the other would use later ones."""
    monkeypatch.setattr(executors, "BACKEND", "inductor")
    layer, rows, found = spectral_norm(nn.Embedding(3, 7).double()), torch.arange(12) % 3, []
    start = {name: value.clone() for name, value in layer.state_dict().items()}
    for calling in (Calling(), Calling(compiler=executors.call_compiler("compile", CPU))):
        layer.load_state_dict(start)
        layer.zero_grad()
        begin_update(layer)
        CalledNetwork(module=layer, calling=calling)(rows).square().sum().backward()
        found.append({"weight": layer.parametrizations.weight.original.grad.clone(), **layer.state_dict()})
    assert distance(*found) <= 1e-12
