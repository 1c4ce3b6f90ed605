"""What the trial before a run says of D's logits: one number for a batch, constants, bounds; each in one line."""

import warnings

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, trainer
from tests.unit.api.test_networks_that_cannot_train import with_forward


def lines_of(folder, g, d, **settings):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(g, d, folder, train__kimg=0.004, **settings).run()
    return sorted({str(warning.message) for warning in caught})


def ending_in(function):
    return with_forward(D(), lambda self, x: function(self.before(x)[:, None]))


@pytest.mark.parametrize(
    ("reduce", "shape"),
    [
        (lambda y: y.mean(), "()"),
        (lambda y: y.mean(0), "(1,)"),
        (lambda y: y.mean(0, keepdim=True), "(1, 1)"),
        (lambda y: y.sum(), "()"),
    ],
)
def test_one_number_for_a_batch_is_refused_with_the_shape_that_was_expected(tmp_path, reduce, shape):
    with pytest.raises(ConfigError) as caught:
        trainer(G(), ending_in(reduce), tmp_path).run()
    assert f"returned a tensor of {shape} for 4 samples" in str(caught.value)
    assert "of shape (4,) or (4, …), not one mean of the batch" in str(caught.value)


@pytest.mark.parametrize(
    "expand",
    [
        lambda y: y.mean().expand(len(y)),
        lambda y: y - y + y.max(),
        lambda y: y.sum(0).repeat(len(y), 1),
    ],
)
def test_one_number_that_is_repeated_for_each_sample_is_noticed(tmp_path, expand):
    (line,) = lines_of(tmp_path, G(), ending_in(expand))
    assert "returned the same logits for samples that differ: is there a mean over the batch?" in line


class Normed(D):
    """Every logit depends on all samples, and they differ."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6)

    def forward(self, x):
        return super().forward(self.norm(x))


def test_logits_that_mix_samples_are_not_noticed(tmp_path):
    assert lines_of(tmp_path / "a", G(), Normed()) == []
    zero = D()
    nn.init.zeros_(zero.last.weight)
    assert lines_of(tmp_path / "b", G(), zero) == []


@pytest.mark.parametrize(
    ("function", "number", "cause"),
    [
        (nn.Softmax(1), "1", "softmax over one value"),
        (nn.Softmin(1), "1", "softmax over one value"),
        (nn.LogSoftmax(1), "0", "log_softmax over one value"),
        (lambda y: torch.cat([y, y], 1).softmax(1), "0.5", "clamp"),
    ],
)
def test_logits_that_are_equal_for_any_weights_are_called_so_once(tmp_path, function, number, cause):
    (line,) = lines_of(tmp_path, G(), ending_in(function))
    assert f"do not train: all are {number}, as of a" in line and cause in line


@pytest.mark.parametrize("function", [nn.ReLU(), nn.LogSigmoid(), lambda y: 10 * y.sigmoid()])
def test_bounded_logits_are_noticed_in_a_run_unless_the_loss_takes_probabilities(tmp_path, function):
    torch.manual_seed(0)
    lines = lines_of(tmp_path, G(), ending_in(function), loss__name="wasserstein")
    assert any("for any weights; leave it out" in line for line in lines)


def test_a_loss_of_probabilities_takes_a_sigmoid(tmp_path):
    loss = pg.Loss(lambda real, fake: -real.log() - (1 - fake).log(), lambda fake, real=None: -fake.log())
    d = with_forward(D(), lambda self, x: self.before(x).sigmoid())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = pg.Trainer(G(), d, {"x": torch.randn(32, 6)}, loss=loss, out=tmp_path, settings={"train.kimg": 0.032})
        assert run.run().is_finished


def test_a_warning_of_a_run_in_python_is_a_line_without_the_code_that_raised_it(tmp_path):
    texts = []

    def show(message, category, filename, lineno, file=None, line=None):
        texts.append(warnings.formatwarning(message, category, filename, lineno, line))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        trainer(G(), ending_in(nn.Tanh()), tmp_path, train__kimg=0.004).run()
        warnings.warn("of the program", stacklevel=1)
    line, other = texts
    assert line.startswith("warning: discriminator: forward(x) ends in a tanh") and line.count("\n") == 1
    assert "UserWarning: of the program" in other


@pytest.mark.parametrize(
    ("penalties", "norm", "number"),
    [([], None, 1), (["gradient_penalty"], None, 0), ([], nn.utils.parametrizations.spectral_norm, 0)],
)
def test_a_wasserstein_d_whose_slopes_nothing_limits_is_noticed(tmp_path, penalties, norm, number):
    d = D()
    for layer in [module for module in d.modules() if isinstance(module, nn.Linear) and norm is not None]:
        norm(layer)
    lines = lines_of(tmp_path, G(), d, loss__name="wasserstein", penalties=penalties)
    assert len([line for line in lines if "can have any slope" in line]) == number
