"""Groups of an optimiser's parameters: against one torch optimiser per group, their learning rates, states, errors."""

import pytest
import torch
from torch import nn

from paragan import build
from paragan.config import dump, parse_recipe
from paragan.core import registry
from paragan.core.errors import ConfigError
from paragan.core.layout import StoredTensors
from paragan.core.types import Side
from paragan.game import schedule
from paragan.game.options import ScheduleOptions
from paragan.game.player import Player
from paragan.game.policy import Policy, learning_rates
from paragan.game.state import restore, state_of
from paragan.layers.spectral_norm import spectral_norm
from paragan.parallel import MemoryOptions, none
from paragan.runs.scaling_rules import scale_learning_rates

KINDS = [
    *((kind.__name__, kind) for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop)),
    *((name, registry.load_module("optim", name).Optimizer) for name in registry.names("optim")),
]
BETAS = {"betas": (0.5, 0.9), "eps": 1e-3}
LINEAR = ScheduleOptions(name="linear", warmup=2, end=8, final=0.1)
GROUPS = ({"match": "*.bias", "lr": 0.05}, {"match": "0.*", "lr": 0.002})
RECIPE = """data: {name: digits, size: 8}
model: mlp
loss: hinge
g:
  optimizer:
    name: Adam
    groups:
      - match: "*.bias"
        weight_decay: 0
      - {match: "0.*", lr: 2.0e-5, eps: 1}
"""


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()


def player(groups=GROUPS, strategy=None, **policy):
    return Player(
        side=Side.D,
        net=network(),
        strategy=strategy or none.Strategy(),
        policy=Policy(lr=0.01, groups=groups, **policy),
    )


def step(player, number, scale=1.0):
    draw = torch.Generator().manual_seed(number)
    weights = list(player.net.parameters())
    gradients = [torch.randn(w.shape, dtype=torch.float64, generator=draw) * scale for w in weights]
    player.apply_external_gradients([g.to(w.dtype) for g, w in zip(gradients, weights, strict=True)], 8)
    return gradients


def tensors(player):
    return state_of(player)[0].tensors


def assert_equal(a, b):
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_optimizer_with_groups_is_one_optimizer_per_group(name, kind):
    arguments = {"momentum": 0.9} if name in ("SGD", "RMSprop") else BETAS
    changed = {key: (0.0, 0.99) if key == "betas" else 0.5 for key in arguments if key != "eps"}
    ours = player(({**GROUPS[0], **changed}, GROUPS[1]), kind=kind, arguments=arguments, schedule=LINEAR)
    plain = dict(network().named_parameters())
    by_group = {(0.05, True): ("0.bias", "1.bias"), (0.002, False): ("0.weight",), (0.01, False): ("1.weight",)}
    optimizers = {}
    for (lr, is_changed), names in by_group.items():
        settings = {**arguments, **(changed if is_changed else {})}
        optimizers[lr] = kind([plain[name] for name in names], lr=lr, **settings)
    for number in range(4):
        gradients = step(ours, number)
        factor = float(schedule.factor(LINEAR, torch.tensor(number)))
        for weight, gradient in zip(plain.values(), gradients, strict=True):
            weight.grad = gradient
        for lr, optimizer in optimizers.items():
            optimizer.param_groups[0]["lr"] = lr * factor
            optimizer.step()
    for weight, expected in zip(ours.net.parameters(), plain.values(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_step_that_is_not_finite_leaves_all_groups_unchanged(name, kind):
    ours = player(kind=kind)
    step(ours, 0)
    before = {name: value.clone() for name, value in tensors(ours).items()}
    step(ours, 1, scale=float("nan"))
    assert_equal(before, tensors(ours))


def test_groups_of_one_pattern_for_all_and_without_a_default_are_steps_too():
    ours = player(({"match": "*", "lr": 0.02},))
    step(ours, 0)
    assert learning_rates(ours.optimizer) == {"lr[*]": 0.02}


def test_first_pattern_that_matches_wins_and_order_of_groups_is_that_of_the_config():
    groups = player().optimizer.param_groups
    assert [group["param_names"] for group in groups] == [["1.weight"], ["0.bias", "1.bias"], ["0.weight"]]


def test_pattern_matches_spectral_norm_weights_by_their_plain_name():
    net = nn.Sequential(spectral_norm(nn.Linear(2, 2)))
    optimizer = Player(side=Side.D, net=net, policy=Policy(groups=({"match": "0.weight", "lr": 1.0},))).optimizer
    assert optimizer.param_groups[1]["param_names"] == ["0.parametrizations.weight.original"]


def test_schedule_multiplies_every_rate():
    ours = player(schedule=LINEAR)
    step(ours, 0)
    assert learning_rates(ours.optimizer) == pytest.approx(
        {"lr": 0.01 / 2, "lr[*.bias]": 0.05 / 2, "lr[0.*]": 0.002 / 2}, abs=1e-15
    )


def test_other_learning_rate_keeps_ratios_and_the_first_one_gives_the_first_rates():
    ours = player()
    first = learning_rates(ours.optimizer)
    assert first == {"lr": 0.01, "lr[*.bias]": 0.05, "lr[0.*]": 0.002}
    ours.set_lr_base(0.03)
    assert learning_rates(ours.optimizer) == pytest.approx({name: 3 * lr for name, lr in first.items()})
    ours.set_lr_base(0.01)
    assert learning_rates(ours.optimizer) == first


MASTERS = none.Strategy(memory=MemoryOptions(weight_dtype=torch.bfloat16))


@pytest.mark.parametrize("strategy", [none.Strategy(), MASTERS], ids=["plain", "master-weights"])
@pytest.mark.parametrize(("before", "after"), [(GROUPS, GROUPS), ((), GROUPS), (GROUPS, ()), (GROUPS, GROUPS[1:])])
def test_state_is_restored_by_name_whatever_the_groups_were(strategy, before, after):
    saved = player(before, strategy)
    for number in range(3):
        step(saved, number)
    fresh = player(after, strategy)
    values = {"version": saved.version, "images": saved.images}
    restore(fresh, StoredTensors.of(tensors(saved)), values)
    assert_equal(tensors(saved), tensors(fresh))
    if before == after:
        for number in range(3, 6):
            step(saved, number)
            step(fresh, number)
        assert_equal(tensors(saved), tensors(fresh))


def test_master_weights_with_groups_step_as_float32_weights():
    ours = player(strategy=MASTERS)
    exact = player()
    exact.net.load_state_dict(ours.net.double().state_dict())
    ours.net.bfloat16()
    for number in range(3):
        step(exact, number)
        step(ours, number)
    for weight, expected in zip(ours.optimizer.copies, exact.net.parameters(), strict=True):
        torch.testing.assert_close(weight.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("group", "said"),
    [
        (
            {"match": "*.bais"},
            r"d\.optimizer\.groups\.0\.match: no parameter .* '\*\.bais'; the closest names are: 1\.bias",
        ),
        ({"lr": 1.0}, r"d\.optimizer\.groups\.0\.match: it is required and must be a pattern"),
        ({"match": "*", "betas": (0, 2)}, r"d\.optimizer\.groups\.0\.betas: betas=\(0, 2\): Invalid beta"),
        ({"match": "*", "beta": 0}, r"d\.optimizer\.groups\.0\.beta: Adam has no such argument; did you mean 'betas'"),
        ({"match": "*", "fused": True}, r"d\.optimizer\.groups\.0\.fused: it applies to all groups; set it in"),
    ],
)
def test_invalid_group_is_one_line_with_its_key_and_cure(group, said):
    with pytest.raises(ConfigError, match=f"^{said}") as refusal:
        player((group,))
    assert "\n" not in str(refusal.value)


def test_group_whose_parameters_earlier_groups_have_is_refused():
    with pytest.raises(ConfigError, match=r"groups\.1\.match: earlier groups match all .* '\*\.bias'; put it before"):
        player(({"match": "*"}, {"match": "*.bias"}))


def test_groups_of_a_recipe_have_floats_and_are_written_back_as_they_were():
    config = parse_recipe(RECIPE, "mine.yaml")
    policy = build.policy(config.g)
    group = policy.optimizer([("a.bias", nn.Parameter(torch.zeros(1))), ("0.b", nn.Parameter(torch.zeros(1)))])
    assert [one["eps"] for one in group.param_groups] == [1e-8, 1.0]
    assert learning_rates(group) == {"lr[*.bias]": 2e-4, "lr[0.*]": 2e-5}
    assert parse_recipe(dump(config), "again") == config


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [("weight_decay: 0", "weight_decoy: 0", "mine.yaml:9: g.optimizer.groups.0.weight_decoy: Adam has no such")],
)
def test_invalid_group_of_a_recipe_is_reported_with_its_line(written, instead, said):
    config = parse_recipe(RECIPE.replace(written, instead), "mine.yaml")
    with pytest.raises(ConfigError) as refusal:
        build.policy(config.g).optimizer(network().named_parameters())
    assert str(refusal.value).startswith(said)


@pytest.mark.parametrize(
    ("written", "instead", "said"),
    [
        ('match: "0.*", ', "", "groups.1.match is required: a pattern over parameter names"),
        ("lr: 2.0e-5", "lr: fast", "groups.1.lr must be a number > 0, not 'fast'"),
    ],
)
def test_config_with_an_invalid_group_is_refused_before_anything_is_built(written, instead, said):
    with pytest.raises(ConfigError) as refusal:
        parse_recipe(RECIPE.replace(written, instead), "mine.yaml")
    assert said in str(refusal.value)


def test_scaling_rules_multiply_every_rate():
    options = scale_learning_rates(parse_recipe(RECIPE, "mine.yaml").g, 2.0).optimizer
    assert (options.lr, options.groups[1]["lr"]) == (4e-4, 4e-5)
    assert options.groups[0] == {"match": "*.bias", "weight_decay": 0}


def optimizer_class(name):
    return getattr(torch.optim, name, None) or registry.load_module("optim", name).Optimizer


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Adam", {"eps": "1e-8"}, "arguments.eps: must be a number, not '1e-8'; the default is eps=1e-08"),
        ("Adam", {"eps": True}, "arguments.eps: must be a number, not true; the default is eps=1e-08"),
        ("Adam", {"betas": ["0.9", 0.99]}, "arguments.betas: must be a list of 2 numbers, not ['0.9', 0.99]; the"),
        ("Adam", {"betas": "0.9,0.99"}, "arguments.betas: must be a list of 2 numbers, not '0.9,0.99'; the default is"),
        ("Adam", {"betas": 0.9}, "arguments.betas: must be a list of 2 numbers, not 0.9; the default is"),
        ("Adam", {"amsgrad": "no"}, "arguments.amsgrad: must be true or false, not 'no'; the default is amsgrad=False"),
        ("Adam", {"maximize": None}, "arguments.maximize: must be true or false, not null; the default is maximize="),
        ("Adafactor", {"eps": [None, "1e-3"]}, "arguments.eps: must be a list of 2 numbers, not [None, '1e-3']; the"),
        ("SGD", {"momentum": "0.9"}, "arguments.momentum: must be a number, not '0.9'; the default is momentum=0"),
        ("lamb", {"eps": "1e-6"}, "arguments.eps: must be a number, not '1e-6'; the default is eps=1e-06"),
    ],
)
@pytest.mark.parametrize("in_group", [False, True])
def test_arguments_of_another_type_are_one_line(name, arguments, expected, in_group):
    kind = optimizer_class(name)
    groups = ({"match": "*", **arguments},) if in_group else ()
    policy = Policy(kind=kind, arguments={} if in_group else arguments, groups=groups)
    where = "optimizer.groups.0" if in_group else "optimizer.arguments"
    with pytest.raises(ConfigError) as caught:
        policy.optimizer([("weight", torch.nn.Parameter(torch.zeros(2)))])
    assert str(caught.value).startswith(expected.replace("arguments", where, 1))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Adam", {"eps": 1, "betas": [0, 0.9], "weight_decay": 1, "foreach": None, "amsgrad": True}),
        ("Adafactor", {"eps": [None, 1e-3]}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ],
)
def test_numbers_flags_and_lists_are_arguments(name, arguments):
    optimizer = Policy(kind=optimizer_class(name), arguments=arguments).optimizer(
        [("weight", torch.nn.Parameter(torch.zeros(2)))]
    )
    assert set(arguments) <= set(optimizer.defaults)


def test_a_flag_of_all_groups_is_no_text():
    policy = Policy(arguments={"foreach": "no"})
    with pytest.raises(ConfigError, match=r"foreach: must be true or false, not 'no'; the default is foreach=None"):
        policy.optimizer([("weight", torch.nn.Parameter(torch.zeros(2)))])
