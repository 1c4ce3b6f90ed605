"""Weights and buffers that a network uses, but that are in no checkpoint or no optimiser, are named before a run."""

import warnings

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import SETTINGS, D, G, trainer


class Uses(nn.Module):
    """G, then `change` of its values; `prepare` adds attributes."""

    latent = 4

    def __init__(self, change, prepare=lambda self: None):
        super().__init__()
        self.net = G()
        prepare(self)
        self.change = change

    def forward(self, latent):
        return self.change(self, self.net(latent))


def _hold_in_a_list(self):
    self.layers = [nn.Linear(6, 6)]


def _hold_a_tensor(self):
    self.scale = torch.ones(6, requires_grad=True)


def _build_late(self, values):
    if not hasattr(self, "late"):
        self.late = nn.Linear(6, 6)
    return self.late(values)


class Replaces(Uses):
    def forward(self, latent):
        self.net.first.weight = nn.Parameter(self.net.first.weight * 1.0)
        return self.net(latent)


STRAYS = {
    "a list": lambda: Uses(lambda self, values: self.layers[0](values), _hold_in_a_list),
    "a plain tensor": lambda: Uses(lambda self, values: values * self.scale, _hold_a_tensor),
    "built in forward": lambda: Uses(_build_late),
    "replaced in forward": lambda: Replaces(None),
}


@pytest.mark.parametrize("kind", STRAYS)
def test_weights_that_are_not_registered_are_refused(tmp_path, kind):
    with pytest.raises(ConfigError, match=r"^generator: forward\(latent\) uses weights that the network did not reg"):
        trainer(STRAYS[kind](), D(), tmp_path).run()
    assert not (tmp_path / "config.yaml").exists()


def test_a_discriminator_that_holds_g_in_a_list_is_refused(tmp_path):
    class Holds(nn.Module):
        def __init__(self, g):
            super().__init__()
            self.net, self.others = D(), [g]

        def forward(self, x):
            return self.net(x) + self.others[0](torch.ones(len(x), 4)).mean()

    with pytest.raises(ConfigError, match=r"^discriminator: forward\(x\) uses weights that the network did not reg"):
        trainer(G(), Holds(G()), tmp_path).run()


def _warnings_of(generator, tmp_path, discriminator=None):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(generator, discriminator or D(), tmp_path).run()
    return [str(warning.message) for warning in caught if "forward(" in str(warning.message)]


def _add_unused(self):
    self.unused = nn.Linear(3, 3)


def test_weights_that_no_output_uses_are_named(tmp_path):
    (line,) = _warnings_of(Uses(lambda self, values: values, _add_unused), tmp_path)
    assert "does not use the weights unused.weight, unused.bias for its outputs" in line


def test_weights_before_a_detach_are_named(tmp_path):
    def first(self):
        self.first = nn.Linear(4, 4)

    class Detaches(Uses):
        def forward(self, latent):
            return self.net(self.first(latent).detach())

    lines = _warnings_of(Detaches(None, first), tmp_path)
    assert any("does not use the weights first.weight, first.bias" in line for line in lines)


def test_frozen_weights_may_be_unused(tmp_path):
    network = Uses(lambda self, values: values, _add_unused)
    network.unused.requires_grad_(False)
    assert _warnings_of(network, tmp_path) == []


BUFFERS = {
    "grows": (torch.zeros(0), lambda n, x: torch.cat([n, x.detach().mean()[None]]), r"\(0,\).* to \(1,\)"),
    "has no value": (None, lambda n, x: x.detach().mean(0), r"no value to \(6,\)"),
    "another dtype": (torch.zeros(()), lambda n, x: (n + 1).double(), "float32 to .*float64"),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers_that_change_their_form_are_refused(tmp_path, kind):
    value, change, text = BUFFERS[kind]

    def step(self, values):
        self.n = change(self.n, values)
        return values

    with pytest.raises(ConfigError, match=f"changes its buffer 'n' from .*{text}"):
        trainer(Uses(step, lambda self: self.register_buffer("n", value)), D(), tmp_path).run()
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_buffer_that_changes_and_is_not_saved_is_named(tmp_path, is_saved):
    def step(self, values):
        self.n = self.n + 1
        return values * (1 + self.n / 100)

    network = Uses(step, lambda self: self.register_buffer("n", torch.zeros(()), persistent=is_saved))
    lines = [line for line in _warnings_of(network, tmp_path) if "persistent" in line]
    assert [("'n'" in line and "a resumed run is not exact" in line) for line in lines] == ([] if is_saved else [True])


IGNORING = {
    "times zero": lambda net, latent: net(latent * 0),
    "a constant": lambda net, latent: net(torch.ones(1, 4)).expand(len(latent), 6),
    "drawn itself": lambda net, latent: net(torch.randn(len(latent), 4)),
}


@pytest.mark.parametrize("kind", IGNORING)
def test_a_generator_that_ignores_its_latents_is_named(tmp_path, kind):
    class Ignores(Uses):
        def forward(self, latent):
            return IGNORING[kind](self.net, latent)

    (line,) = _warnings_of(Ignores(None), tmp_path)
    assert line.startswith("generator: forward(latent) returned values that do not depend on 'latent'")


@pytest.mark.parametrize(
    "read",
    [lambda x: x.argmax(1).float(), lambda x: (x > 0).float().sum(1), lambda x: x.round().sum(1)],
    ids=["argmax", "comparison", "round"],
)
@pytest.mark.parametrize("is_normalised", [False, True])
def test_a_condition_that_is_read_without_a_gradient_is_not_called_ignored(tmp_path, read, is_normalised):
    class Reads(nn.Module):
        latent = 4

        def __init__(self):
            super().__init__()
            layer = nn.Linear(5, 6)
            self.net = nn.utils.parametrizations.spectral_norm(layer) if is_normalised else layer

        def forward(self, latent, condition):
            return self.net(torch.cat([latent, read(condition)[:, None]], 1))

    class Ignores(Reads):
        def forward(self, latent, condition):
            return super().forward(latent, condition * 0)

    data = {"x": torch.randn(32, 6), "condition": 2 * torch.randn(32, 4)}

    def lines(network):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pg.Trainer(network, D(), data, settings=SETTINGS, out=tmp_path / type(network).__name__).run()
        return [str(each.message) for each in caught if "do not depend" in str(each.message)]

    assert lines(Reads()) == []
    assert len(lines(Ignores())) == 1


def test_a_last_layer_that_begins_at_zero_ignores_nothing(tmp_path):
    generator = G()
    nn.init.zeros_(generator.last.weight)
    assert _warnings_of(generator, tmp_path) == []


class InPlaceG(G):
    def forward(self, latent):
        return super().forward(latent.mul_(2))


class InPlaceD(D):
    def forward(self, x):
        return super().forward(x.mul_(2))


@pytest.mark.parametrize("nets", [(InPlaceG, D), (G, InPlaceD)])
def test_a_network_that_changes_its_input_in_place_is_named(tmp_path, nets):
    g, d = (kind() for kind in nets)
    (line,) = _warnings_of(g, tmp_path, d)
    assert "changes its input in place" in line


@pytest.mark.parametrize("out", [3, 2.5, ["runs"]])
def test_a_folder_that_is_no_path_is_one_line(out):
    with pytest.raises(ConfigError, match=r"^out must be the path of a folder, not"):
        trainer(G(), D(), out)


@pytest.mark.parametrize("latent", ["4", 4.0, (4,), -1, True])
def test_a_length_of_the_latent_that_is_none_is_named(tmp_path, latent):
    generator = G()
    generator.latent = latent
    with pytest.raises(ConfigError, match=r"^generator: the attribute latent of G is .* an integer"):
        trainer(generator, D(), tmp_path)


def test_a_layer_may_be_called_latent(tmp_path):
    class FromSamples(nn.Module):
        def __init__(self):
            super().__init__()
            self.latent = nn.Linear(6, 6)

        def forward(self, x):
            return self.latent(x)

    assert trainer(FromSamples(), D(), tmp_path).run().is_finished


class Strict(G):
    """Refuses weights that no run has: those with which the trial asks what its values depend on."""

    def __init__(self, error):
        super().__init__()
        self.error, self.largest = error, float(self.first.weight.detach().abs().max()) + 0.05

    def forward(self, latent):
        if self.first.weight.abs().max() > self.largest:
            raise self.error
        return super().forward(latent)


@pytest.mark.parametrize("error", [AssertionError("too large"), ValueError("too large"), ConfigError("too large")])
def test_a_generator_that_refuses_other_weights_trains(tmp_path, error):
    assert _warnings_of(Strict(error), tmp_path) == []
