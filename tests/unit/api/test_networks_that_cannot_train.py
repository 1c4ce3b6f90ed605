"""Networks through which no gradient reaches what trains, or that are wrapped or compiled, are one line."""

import re
import sys

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.cli.main import main
from paragan.cli.new import new
from paragan.core.errors import ConfigError
from paragan.game.plain_layers import check_plain_layers
from tests.unit.api.test_networks_of_the_field import D, G, data, trainer


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.logit.expand(len(x))


def with_forward(net, forward):
    """Return the network with another forward, which calls the former one as `before`."""
    kind = type(net)
    net.__class__ = type(kind.__name__, (kind,), {"forward": forward, "before": kind.forward})
    return net


CUT_DS = {
    "constant": Constant,
    "other input": lambda: with_forward(D(), lambda self, x: self.before(torch.ones_like(x))),
    "detach": lambda: with_forward(D(), lambda self, x: self.before(x.detach())),
    "comparison": lambda: with_forward(D(), lambda self, x: self.before((x > 0).float())),
    "argmax": lambda: with_forward(D(), lambda self, x: self.before(nn.functional.one_hot(x.argmax(1), 6).float())),
}
CUT_GS = {
    "detach": lambda: with_forward(G(), lambda self, latent: self.before(latent).detach()),
    "no_grad": lambda: with_forward(G(), torch.no_grad()(lambda self, latent: self.before(latent))),
    "argmax": lambda: with_forward(
        G(), lambda self, latent: nn.functional.one_hot(self.before(latent).argmax(1), 6).float()
    ),
}


@pytest.mark.parametrize("name", CUT_DS)
def test_a_discriminator_that_passes_no_gradient_to_g_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"^discriminator: forward\(x\) returned logits that do not depend on 'x'.*G"):
        trainer(G(), CUT_DS[name](), tmp_path).run()
    assert not (tmp_path / "config.yaml").exists()


def test_one_of_several_discriminators_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"forward\(x\) second returned logits that do not depend on 'x'"):
        trainer(G(), {"first": D(), "second": Constant()}, tmp_path).run()


@pytest.mark.parametrize("name", CUT_GS)
def test_a_generator_without_a_gradient_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"^generator: forward\(latent\) returned values without a gradient, so its"):
        trainer(CUT_GS[name](), D(), tmp_path).run()


class CallsOtherD(nn.Module):
    """Calls the network that was passed from any copy: a lambda is copied as it is."""

    def __init__(self):
        super().__init__()
        self.inner = D()
        self.body = lambda x: self.inner(x)

    def forward(self, x):
        return self.body(x)


class CallsOtherG(G):
    def __init__(self):
        super().__init__()
        self.body = lambda latent: G.forward(self, latent)

    def forward(self, latent):
        return self.body(latent)


@pytest.mark.parametrize(("g", "d", "call"), [(CallsOtherG, D, "generator"), (G, CallsOtherD, "discriminator")])
def test_a_network_that_calls_another_one_is_refused(tmp_path, g, d, call):
    with pytest.raises(ConfigError, match=rf"^{call}: forward\(\w+\) returned .* do not depend on its weights"):
        trainer(g(), d(), tmp_path).run()


def test_a_gradient_of_0_is_noticed_unless_a_last_layer_begins_at_0(tmp_path):
    rounding = with_forward(D(), lambda self, x: self.before(x.round()))
    with pytest.warns(UserWarning, match=r"discriminator: forward\(x\) returned logits whose gradient is 0"):
        trainer(G(), rounding, tmp_path / "a", train__kimg=0.004).run()
    rounding = with_forward(G(), lambda self, latent: self.before(latent).round())
    with pytest.warns(UserWarning, match=r"generator: forward\(latent\) returned values whose gradient is 0"):
        trainer(rounding, D(), tmp_path / "b", train__kimg=0.004).run()


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_last_layer_that_begins_at_0_is_not_noticed(tmp_path):
    d = D()
    nn.init.zeros_(d.last.weight)
    assert trainer(G(), d, tmp_path, train__kimg=0.004).run().is_finished


def refuses_large(self, x):
    if self.last.weight.abs().sum() > 0.2:
        raise ValueError("weights out of range")
    return self.before(x)


def detached_when_large(self, x):
    return self.before(x.detach() if self.last.weight.abs().sum() > 0.2 else x)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("forward", [refuses_large, detached_when_large])
def test_a_last_layer_that_begins_at_0_may_refuse_other_weights(tmp_path, forward):
    """The trial tries weights that no run has; what a network does with them is no problem of the user."""
    d = with_forward(D(), forward)
    nn.init.zeros_(d.last.weight)
    assert trainer(G(), d, tmp_path, train__kimg=0.004).run().is_finished


class FSDPModule:
    """Stands in for the class that `fully_shard` adds."""


def sharded(net):
    net.__class__ = type("FSDPLinear", (FSDPModule, nn.Linear), {})
    return net


def compiled_in_place(net):
    net.compile()
    return net


def compiled_forward(net):
    net.forward = torch.compile(net.forward)
    return net


WRAPPED = {
    "data parallel": (nn.DataParallel, "is a DataParallel; pass its attribute `module`"),
    "compiled": (torch.compile, r"was compiled by torch\.compile; pass the network"),
    "compiled in place": (compiled_in_place, "was compiled by its method compile; leave that call out"),
    "compiled forward": (compiled_forward, "has the attribute 'forward', a function compiled by torch.compile"),
    "sharded": (sharded, "was sharded by fully_shard; pass it unsharded"),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("path", ["", "first", "inner.first"])
def test_wrapped_layers_are_refused_by_name(name, path):
    wrap, message = WRAPPED[name]
    layer = wrap(nn.Linear(4, 4))
    net = layer
    for part in reversed(path.split(".") if path else []):
        net = nn.ModuleDict({part: net})
    with pytest.raises(ConfigError, match=rf"^owner{f': its layer {path}' if path else ''} {message}"):
        check_plain_layers("owner", net)


def test_wrapped_layers_are_refused_wherever_a_network_comes_from(tmp_path):
    d = D()
    d.last = nn.DataParallel(d.last)
    for call in (
        lambda: trainer(G(), d, tmp_path),
        lambda: trainer(G(), {"a": D(), "b": d}, tmp_path),
        lambda: pg.Trainer(G(), D(), data(), players={"extra": d}, out=tmp_path),
        lambda: pg.train("digits", generator=G(), discriminator=d, out=tmp_path),
    ):
        with pytest.raises(ConfigError, match=r"layer (b\.)?last is a DataParallel"):
            call()


@pytest.mark.parametrize("wrap", ["nn.DataParallel", "torch.compile"])
def test_wrapped_layers_of_a_recipe_are_refused_by_name(tmp_path, monkeypatch, capsys, wrap):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    name = f"wrapped_{wrap.partition('.')[0]}"
    new(name)
    nets = tmp_path / name / "nets.py"
    text = nets.read_text().replace("nn.Flatten(), logit)", f"nn.Flatten(), {wrap}(logit))")
    nets.write_text(text.replace("from torch import Tensor, nn", "import torch\nfrom torch import Tensor, nn"))
    capsys.readouterr()
    assert main(["train", f"{name}/recipe.yaml", "--out", "run"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(
        r"model of d: its layer layers\.5 (is a DataParallel; pass|was compiled by torch.compile; pass)", line
    )
    assert not (tmp_path / "run").exists()
