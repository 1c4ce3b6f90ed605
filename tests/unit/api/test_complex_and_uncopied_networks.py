"""Complex weights and data in every format and penalty; networks that cannot be copied, wrapped or traced."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError, DataError
from paragan.core.network_factory import copy_networks
from paragan.game.sampling import with_standing_statistics
from tests.unit.api.test_networks_of_the_field import D, G, Spectral, data, trainer


def imaginary(run):
    return run.generator.weight.imag.abs().max()


@pytest.mark.parametrize("settings", [{"g__precision": "pure"}, {"g__optimizer__name": "lamb"}], ids=["pure", "lamb"])
def test_complex_weights_keep_their_imaginary_part(tmp_path, settings):
    """Numbers of bfloat16 have none: complex weights stay complex64."""
    torch.manual_seed(0)
    start = Spectral().weight.detach()
    run = trainer(Spectral, D, tmp_path, **settings).run()
    assert imaginary(run) > 0.1 and run.generator.weight.dtype == torch.complex64
    assert not torch.equal(run.generator.weight.imag, start.imag)


def test_an_optimiser_without_complex_weights_is_refused_at_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"g\.optimizer: Adafactor cannot train complex weights"):
        trainer(Spectral, D, tmp_path, g__optimizer__name="Adafactor").run()
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.parametrize("kind", ["weight", "buffer"])
def test_numbers_that_no_checkpoint_has_are_refused_at_the_start(tmp_path, kind):
    class Wide(G):
        def __init__(self):
            super().__init__()
            wide = torch.ones(2, dtype=torch.complex128)
            if kind == "weight":
                self.wide = nn.Parameter(wide)
            else:
                self.register_buffer("wide", wide)

    with pytest.raises(ConfigError, match="generator: wide has complex128 numbers"):
        trainer(Wide, D, tmp_path)


class ComplexG(Spectral):
    def __init__(self):
        super().__init__()
        self.register_parameter("bias", None)

    def forward(self, latent):
        return torch.fft.fft(latent) @ self.weight.T


class ComplexD(D):
    def forward(self, x):
        return super().forward(x.real + x.imag)


@pytest.mark.parametrize("term", ["r1", "r2", "gradient_penalty"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_input_gradients_of_complex_samples(tmp_path, term, dtype):
    samples = data(dtype=np.float64)["x"] + 1j * data(dtype=np.float64)["x"][::-1]
    held = {"x": samples.astype(dtype)}
    run = trainer(ComplexG, ComplexD, tmp_path, held, penalties=[{"name": term}]).run()
    assert run.is_finished and all(line.get(f"d/loss/{term}", 0) >= 0 for line in run.history)


def test_r1_of_complex_samples_is_that_of_both_parts():
    weight = torch.randn(3, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.complex128).requires_grad_()
    found = pg.r1_penalty(x.real @ weight + 2 * (x.imag @ weight), x)
    torch.testing.assert_close(found, (5 * weight.square().sum() / 2).expand(4))


def test_overlap_of_complex_filters_is_hermitian():
    from paragan.penalties.orthogonal import _overlap

    matrix = torch.randn(3, 5, dtype=torch.complex128)
    gram = (matrix.conj() @ matrix.T).numpy()
    expected = np.abs(gram - np.diag(np.diag(gram)))
    assert float(_overlap(matrix)) == pytest.approx(float((expected**2).sum()))


class Held:
    """An object that is no module, and has an output of the network."""


def with_lock(net):
    net.lock = threading.Lock()


def with_file(net):
    net.log = open("/dev/null")  # noqa: SIM115


def with_output(net):
    net.held = Held()
    net.held.y = net(torch.ones(2, 4))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(("add", "name"), [(with_lock, "lock"), (with_file, "log"), (with_output, "held")])
def test_a_network_that_cannot_be_copied_is_refused_with_the_attribute(tmp_path, add, name):
    g = G()
    add(g)
    with pytest.raises(ConfigError, match=f"a network cannot be copied, because of its attribute {name} "):
        trainer(g, D(), tmp_path).run()


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: setattr(d, "first", torch.compile(d.first)), "its layer first was compiled by torch.compile"),
        (lambda d: setattr(d, "last", torch.jit.script(d.last)), "its layer last is a program of torch.jit"),
    ],
    ids=["compiled", "scripted"],
)
def test_inner_layers_that_are_programs_are_refused_by_name(tmp_path, change, message):
    d = D()
    change(d)
    with pytest.raises(ConfigError, match=f"discriminator: {message}"):
        trainer(G(), d, tmp_path)
    with pytest.raises(ConfigError, match=message):
        pg.train("digits", generator=G(), discriminator=d, out=tmp_path)


def test_a_wrapped_network_of_train_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="is a DataParallel; pass its attribute `module`"):
        pg.train("digits", generator=nn.DataParallel(G()), discriminator=D(), out=tmp_path)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated:FutureWarning")
def test_old_style_weight_norm_is_copied_after_a_call_for_sampling():
    """Standing statistics and exports copy networks that have been called."""
    net = nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 6)), nn.BatchNorm1d(6))
    expected = net(torch.ones(3, 4))
    with_standing_statistics(net, [(torch.randn(8, 4), None)])
    assert torch.equal(copy_networks(net).train()(torch.ones(3, 4)), expected)


@pytest.mark.parametrize("kind", [float, int])
def test_masked_numbers_are_missing_ones(tmp_path, capsys, kind):
    x = np.ma.masked_array(np.ones((32, 6), dtype=kind), mask=np.zeros((32, 6), dtype=bool))
    x[7, 2] = np.ma.masked
    if kind is int:
        with pytest.raises(DataError, match="'x' with masked values of int64"):
            trainer(G, D, tmp_path, {"x": x})
        return
    trainer(G, D, tmp_path / "a", {"x": x}).run()
    trainer(G, D, tmp_path / "b", {"x": np.ma.masked_array(np.ones((32, 6)))}).run()
    assert capsys.readouterr().err.count("x is not finite in 1 of 32 samples, number 7") == 1


@pytest.mark.parametrize("dtype", [object, np.longdouble])
def test_arrays_that_torch_lacks_are_refused_with_their_format(tmp_path, dtype):
    with pytest.raises(DataError, match=f"'x' of type ndarray of {np.dtype(dtype)}"):
        trainer(G, D, tmp_path, {"x": np.ones((32, 6)).astype(dtype)})


SIGMOIDS = {
    "patches": lambda y: torch.stack([y, 2 * y], 1).sigmoid().mean(1),
    "clamped": lambda y: y.sigmoid().clamp(1e-6, 1 - 1e-6),
    "hard": nn.functional.hardsigmoid,
    "by hand": lambda y: 1 / (1 + torch.exp(-y)),
    "softmax": lambda y: torch.stack([y, -y], 1).softmax(1)[:, 0],
    "scaled": lambda y: (y.sigmoid() + (2 * y).sigmoid()) / 2,
}


@pytest.mark.parametrize("name", SIGMOIDS)
def test_a_probability_in_place_of_a_logit_is_noticed(tmp_path, name):
    class Probability(D):
        def forward(self, x):
            return SIGMOIDS[name](super().forward(x))

    with pytest.warns(UserWarning, match="ends in a sigmoid"):
        trainer(G(), Probability(), tmp_path, train__kimg=0.004).run()


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("make", [lambda y: 10 * y.sigmoid() - 5, lambda y: y.sigmoid() + y])
def test_other_bounded_logits_are_not_taken_for_probabilities(tmp_path, make):
    class Bounded(D):
        def forward(self, x):
            return make(super().forward(x))

    trainer(G(), Bounded(), tmp_path, train__kimg=0.004).run()
