"""State of a user's penalties: what they replace is saved, and what a resume would not have is refused in one line."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.errors import CheckpointError, ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, trainer, weights


class Changing(pg.Penalty):
    """Changes its state by a function in each turn; `value` enters the loss."""

    name = "changing"
    side = pg.Side.G

    def __init__(self, state, change=lambda self, x: None):
        self.state = state
        self.change = change

    def __call__(self, context):
        x = context.outputs.images
        self.change(self, x.detach())
        value = sum(tensor.sum() for tensor in self.state.values())
        return (x - value).square().mean(1)


def _set(self, x):
    self.state["m"] = 0.9 * self.state["m"] + 0.1 * x.mean(0)


def _update(self, x):
    self.state.update({"m": self.state["m"].lerp(x.mean(0), 0.1)})


def _in_place(self, x):
    self.state["m"].lerp_(x.mean(0), 0.1)


@pytest.mark.parametrize(
    ("change", "scheme"), [(_set, "synchronous"), (_update, "extragradient"), (_in_place, "synchronous")]
)
def test_replaced_state_resumes_as_a_run_without_a_stop(tmp_path, change, scheme):
    finals = []
    for name, ends in (("whole", [0.04]), ("parts", [0.02, 0.04])):
        for kimg in ends:
            penalty = Changing({"m": torch.zeros(6)}, change)
            trainer(G, D, tmp_path / name, terms=[penalty], train__kimg=kimg, scheme__name=scheme).run()
        finals.append(weights(tmp_path / name))
    assert finals[0] == finals[1] != {}


def test_look_ahead_at_replaced_state_is_no_update(tmp_path):
    penalty = Changing({"n": torch.zeros(())}, lambda self, x: self.state.update(n=self.state["n"] + 1))
    trainer(G, D, tmp_path, terms=[penalty], scheme__name="extragradient").run()
    assert int(penalty.state["n"]) == 10


def _add(self, x):
    self.state.setdefault("late", torch.zeros(2)).add_(1)


def _grow(self, x):
    self.state["m"] = torch.cat([self.state["m"], torch.ones(1)])


def _widen(self, x):
    self.state["m"] = self.state["m"].double()


def _remove(self, x):
    self.state.pop("m", None)


def _replace_all(self, x):
    self.state = {"m": self.state["m"] + 1}


def _hold_a_graph(self, x):
    self.state["m"] = self.state["m"] + torch.ones(6, requires_grad=True)


CHANGES = {
    "appears": (_add, r"state\['late'\] .* no value to \(2,\)"),
    "grows": (_grow, r"state\['m'\] .* \(6,\) .* to \(7,\)"),
    "another dtype": (_widen, r"state\['m'\] .*float32 to .*float64"),
    "removed": (_remove, r"state\['m'\] .* to no value"),
    "another dict": (_replace_all, "another dict"),
    "not detached": (_hold_a_graph, r"state\['m'\] .* with a gradient"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_state_that_a_resume_would_not_have_is_refused_before_a_run(tmp_path, kind):
    change, text = CHANGES[kind]
    with pytest.raises(ConfigError, match=f"^g: .*{text}") as error:
        trainer(G, D, tmp_path, terms=[Changing({"m": torch.zeros(6)}, change)]).run()
    assert "changing" in str(error.value) and "__init__" in str(error.value)
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.filterwarnings("ignore:penalty changing changes turns:UserWarning")
def test_state_that_grows_later_is_refused_where_it_is_saved(tmp_path):
    turns = []

    def grow_later(self, x):
        turns.append(1)
        if len(turns) > 3:
            _grow(self, x)

    with pytest.raises(ConfigError, match=r"state\['m'\] of changing changes from \(6,\)"):
        trainer(G, D, tmp_path, terms=[Changing({"m": torch.zeros(6)}, grow_later)]).run()


STATES = {
    "number": ({"n": 0}, r"state\['n'\] of changing .* int"),
    "array": ({"n": np.zeros(2)}, r"state\['n'\] of changing .* ndarray"),
    "nested": ({"a": {"b": torch.zeros(1)}}, r"state\['a'\] of changing .* dict"),
    "other names": ({0: torch.zeros(1)}, r"state\[0\] of changing"),
    "list": ([torch.zeros(2)], "state of changing .* list"),
    "none": (None, "state of changing .* NoneType"),
}


@pytest.mark.parametrize("kind", STATES)
def test_state_that_is_no_dict_of_tensors_is_refused(tmp_path, kind):
    state, text = STATES[kind]
    with pytest.raises(ConfigError, match=rf"^g: {text}"):
        trainer(G, D, tmp_path, terms=[Changing(state)]).run()


def test_state_of_another_shape_than_the_saved_is_refused(tmp_path):
    trainer(G, D, tmp_path, terms=[Changing({"m": torch.zeros(1)})], train__kimg=0.02).run()
    with pytest.raises(CheckpointError, match=r"changing/m is \(1,\) there and \(6,\)"):
        trainer(G, D, tmp_path, terms=[Changing({"m": torch.zeros(6)})]).run()


def test_state_without_a_dict_of_its_own_is_of_one_penalty():
    class Default(Changing):
        def __init__(self):
            self.state["m"] = torch.zeros(1)

    first = Default()
    assert list(first.state) == ["m"]
    assert pg.Term(name="other", function=lambda outputs, feed: outputs.images).state == {}


class Headed(pg.Penalty):
    """Calls a network of its own."""

    name = "headed"
    side = pg.Side.G

    def __init__(self, layers):
        self.layers = layers

    def __call__(self, context):
        return self.layers[0](context.outputs.images).square().mean(1)


def _headed(head):
    return Headed([head])


def _closure(head):
    return pg.Term(name="headed", function=lambda outputs, feed: head(outputs.images).square())


def _bound(head):
    return pg.Term(name="headed", function=partial(lambda net, outputs, feed: net(outputs.images).square(), head))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("net", [partial(nn.Linear, 6, 1), Scaled])
@pytest.mark.parametrize("made", [_headed, _closure, _bound])
def test_weights_of_a_term_that_nothing_trains_are_warned_of(tmp_path, made, net):
    lines = _warnings_of(tmp_path / "trainable", made(net()))
    assert len(lines) == 1 and "players=" in lines[0]
    assert _warnings_of(tmp_path / "frozen", made(net().requires_grad_(False))) == []


def test_the_players_network_and_leaves_of_a_turn_are_not_warned_of(tmp_path):
    class Slope(pg.Penalty):
        name = "headed"
        side = pg.Side.D

        def __call__(self, context):
            x = context.feed.real_sample.detach().requires_grad_()
            return context.network(x).square() + x.square().mean(1)

    assert _warnings_of(tmp_path, Slope()) == []


def _warnings_of(folder, penalty):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(G, D, folder, terms=[penalty], train__kimg=0.004).run()
    return [str(warning.message) for warning in caught if "headed" in str(warning.message)]
