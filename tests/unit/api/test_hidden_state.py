"""State of custom code that no checkpoint has: counters and numbers in attributes, closures, globals and defaults."""

import itertools
import random
import re
import warnings
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from tests.unit.api.test_networks_of_the_field import SETTINGS, D, G, data, trainer

CALLS = [0]
_count = 0


def square(outputs, feed=None):
    return outputs.images.square()


class Attribute(pg.Penalty):
    """Changes an attribute in each turn."""

    name = "own"
    side = pg.Side.G
    calls = 0

    def __init__(self, value=0, change=lambda value, x: value + 1):
        self.held = value
        self.change = change

    def __call__(self, context):
        self.held = self.change(self.held, context.outputs.images.detach())
        return square(context.outputs).mean(1)


class OfClass(Attribute):
    def __call__(self, context):
        OfClass.calls += 1
        return square(context.outputs).mean(1)


def _append(value, x):
    value.append(float(x.mean()))
    return value


def _of_method(value, x):
    value.integers(3)
    return value


def closure():
    n = 0

    def function(outputs, feed):
        nonlocal n
        n += 1
        return square(outputs)

    return pg.Term(name="own", function=function)


def of_module(outputs, feed):
    global _count
    _count += 1
    return square(outputs)


def of_list_in_module(outputs, feed):
    CALLS[0] += 1
    return square(outputs)


def default(outputs, feed, n=[0]):  # noqa: B006  # the counter of a user
    n[0] += 1
    return square(outputs)


def of_function(outputs, feed):
    of_function.n = getattr(of_function, "n", 0) + 1
    return square(outputs)


class Ramp:
    def __init__(self):
        self.n = 0

    def __call__(self, outputs, feed):
        self.n += 1
        return square(outputs)

    def method(self, outputs, feed):
        return self(outputs, feed)


class Frozen(nn.Module):
    """A network of a penalty whose running statistics follow the samples."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        return self.norm(x)


class Normed(Attribute):
    def __init__(self):
        super().__init__(Frozen())

    def __call__(self, context):
        return self.held(context.outputs.images).square().mean(1)


TERMS = {
    "number": (Attribute, "held"),
    "float": (lambda: Attribute(0.5), "held"),
    "tensor": (lambda: Attribute(torch.zeros(6), lambda value, x: value.lerp(x.mean(0), 0.1)), "held"),
    "tensor in place": (lambda: Attribute(torch.zeros(6), lambda value, x: value.lerp_(x.mean(0), 0.1)), "held"),
    "array": (lambda: Attribute(np.zeros(6), lambda value, x: value + x.mean(0).numpy()), "held"),
    "list": (lambda: Attribute([], _append), r"held\[\d+\]"),
    "dict": (lambda: Attribute({"n": 0}, lambda value, x: {"n": value["n"] + 1}), "held.n"),
    "generator": (lambda: Attribute(np.random.default_rng(0), _of_method), "held"),
    "random": (lambda: Attribute(random.Random(0), lambda value, x: (value.random(), value)[1]), "held"),
    "iterator": (lambda: Attribute(itertools.count(), lambda value, x: (next(value), value)[1]), "held"),
    "class": (OfClass, "calls"),
    "closure": (closure, "n"),
    "module": (lambda: pg.Term(name="own", function=of_module), "_count"),
    "list in module": (lambda: pg.Term(name="own", function=of_list_in_module), r"CALLS\[0\]"),
    "default": (lambda: pg.Term(name="own", function=default), "default"),
    "attribute of a function": (lambda: pg.Term(name="own", function=of_function), "of_function.n"),
    "object": (lambda: pg.Term(name="own", function=Ramp()), "n"),
    "method": (lambda: pg.Term(name="own", function=Ramp().method), "n"),
    "buffers of a network": (Normed, "held.norm"),
}


@pytest.mark.parametrize("kind", TERMS)
def test_state_of_a_term_outside_of_its_state_is_warned_of_by_name(tmp_path, kind):
    make, name = TERMS[kind]
    with pytest.warns(UserWarning, match=rf"^penalty own changes .*{name}.* self.state") as caught:
        trainer(G, D, tmp_path, terms=[make()], train__kimg=0.004).run()
    assert len([line for line in caught if "changes" in str(line.message)]) == 1


class Cached(Attribute):
    """Creates what it needs in its first turn."""

    def __init__(self):
        super().__init__(None)

    def __call__(self, context):
        x = context.outputs.images
        if self.held is None:
            self.held = torch.zeros_like(x[0])
        return (x - self.held).square().mean(1)


class Registered(Attribute):
    """Holds a tensor of its state in an attribute, too."""

    def __init__(self):
        super().__init__(torch.zeros(()))
        self.state = {"n": self.held}

    def __call__(self, context):
        self.state["n"] += 1
        return square(context.outputs).mean(1)


class File(Mapping):
    """Reads a file at each access, as those of many libraries do."""

    def __getitem__(self, key):
        raise OSError("the file was read")

    def __iter__(self):
        raise OSError("the file was read")

    def __len__(self):
        return 1 << 40


QUIET = {
    "a mapping of a file": lambda: [Attribute(File(), lambda value, x: value)],
    "many large arrays": lambda: [Attribute([np.zeros(1 << 11)] * (1 << 20), lambda value, x: value)],
    "plain": lambda: [pg.Term(name="own", function=square)],
    "cached": lambda: [Cached()],
    "registered": lambda: [Registered()],
    "frozen": lambda: [Attribute(Frozen().eval(), lambda value, x: value)],
}


@pytest.mark.parametrize("kind", QUIET)
def test_terms_without_hidden_state_are_not_warned_of(tmp_path, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(G, D, tmp_path, terms=QUIET[kind](), train__kimg=0.004).run()


def test_state_of_a_loss_is_warned_of_by_name(tmp_path):
    turns = [0]

    def g_loss(fake, real=None):
        turns[0] += 1
        return -fake * min(1, turns[0] / 100)

    loss = pg.Loss(lambda real, fake: (1 - real).relu() + (1 + fake).relu(), g_loss)
    with pytest.warns(UserWarning, match=r"^loss: g_loss changes turns\[0\]"):
        pg.Trainer(G(), D(), data(), settings={**SETTINGS, "train.kimg": 0.004}, loss=loss, out=tmp_path).run()


class Warming(G):
    """Counts its calls for a change that comes later."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, z):
        self.calls += 1
        self.features = z * 2  # of the last call, for a penalty
        return super().forward(z) * (2 if self.calls > 100 else 1)


def test_counters_of_a_network_that_act_later_are_warned_of_by_name(tmp_path):
    with pytest.warns(UserWarning, match=r"generator: forward.* changes calls, .* buffer"):
        trainer(Warming, D, tmp_path, train__kimg=0.004).run()


class Whole(Attribute):
    """Reads the whole batch, by the context or by the outputs."""

    def __init__(self, reads_outputs):
        super().__init__(reads_outputs)

    def __call__(self, context):
        whole = context.outputs.whole if self.held else context.whole
        return (context.outputs.images - whole(context.outputs.images).mean(0)).square().mean(1)


@pytest.mark.parametrize("reads_outputs", [False, True])
def test_a_penalty_that_reads_the_whole_batch_is_refused_with_micro_batches_before_a_file_is_written(
    tmp_path, reads_outputs
):
    with pytest.raises(pg.ConfigError, match=r"^penalty own needs .*g\.micro_batches=2"):
        trainer(G, D, tmp_path, terms=[Whole(reads_outputs)], g__micro_batches=2).run()
    assert list(tmp_path.iterdir()) == []
    trainer(G, D, tmp_path, terms=[Whole(reads_outputs)], d__micro_batches=2, train__kimg=0.004).run()


def tensor_of_closure(scale):
    return pg.Term(name="own", function=lambda outputs, feed: outputs.images.square() * scale)


@pytest.mark.parametrize("make", [tensor_of_closure, lambda scale: Scaled([scale]), lambda scale: Scaled({"a": scale})])
def test_a_tensor_with_a_gradient_that_nothing_trains_is_warned_of(tmp_path, make):
    with pytest.warns(UserWarning, match="^penalty own calls weights of no player .*requires_grad_"):
        trainer(G, D, tmp_path, terms=[make(torch.ones(6, requires_grad=True))], train__kimg=0.004).run()


class Scaled(Attribute):
    def __init__(self, scales):
        super().__init__(scales)

    def __call__(self, context):
        scales = self.held.values() if isinstance(self.held, dict) else self.held
        return (context.outputs.images.square() * next(iter(scales))).mean(1)


def layers(*activations):
    torch.manual_seed(0)
    g = nn.Sequential(nn.Linear(4, 8), activations[0], nn.Linear(8, 6))
    g.latent = 4
    return g, nn.Sequential(nn.Linear(6, 8), activations[1], nn.Linear(8, 1))


CHANGED = {
    "another activation": (nn.ReLU(), nn.Tanh(), "g: 1 was ReLU.*, now Tanh"),
    "another slope": (nn.LeakyReLU(0.2), nn.LeakyReLU(0.1), "g: 1 was .*0.2.*, now .*0.1"),
    "a layer without weights": (nn.Identity(), nn.Sequential(nn.Tanh(), nn.Dropout(0.1)), "1.0 was missing, now Tanh"),
}


@pytest.mark.parametrize("strategy", ["none", "zero2"])
@pytest.mark.parametrize("kind", CHANGED)
def test_layers_that_have_changed_with_equal_weights_are_named_in_a_line(tmp_path, capfd, kind, strategy):
    before, now, text = CHANGED[kind]
    for change, kimg in ((before, 0.02), (before, 0.03), (now, 0.04)):
        g, d = layers(change, nn.LeakyReLU(0.2))
        trainer(g, d, tmp_path, train__kimg=kimg, g__strategy=strategy).run()
        lines = [line for line in capfd.readouterr().err.splitlines() if "layers of" in line]
        assert len(lines) == (change is now)
    assert re.search(text.replace("g: ", "layers of g have .*"), lines[0])
