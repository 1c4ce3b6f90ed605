"""Several discriminators in one player: outputs, loss, weights, penalties, record; float64 against plain formulas."""

import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.outputs import discriminator_weights
from paragan.core.types import Side
from paragan.game.network import CalledNetwork, Calling
from paragan.parallel.base.blocks import blocks
from paragan.schemes import synchronous
from tests.one_turn import BATCH, SHAPE, assert_plain, nets, play, turn

NAMES = ("mpd/0", "mpd/1", "msd")


class Small(nn.Module):
    """One layer of features and `size` logits."""

    def __init__(self, size: int, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(64, width)
        self.last = nn.Linear(width, size)

    def forward(self, x, y=None):
        h = self.first(x.flatten(1)).tanh()
        return self.last(h), [h, h.square()[:, :2]]


class Two(nn.Module):
    """A list of two."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = nn.ModuleList([Small(2), Small(5)])

    def forward(self, x, y=None):
        return [net(x, y) for net in self.nets]


def several() -> pg.Discriminators:
    torch.manual_seed(0)
    return pg.Discriminators(mpd=Two(), msd=Small(7, 6)).double()


def batches():
    step = 0
    while True:
        yield pg.Batch(
            pg.Rows(step=step, first=0, count=8, total=8),
            {"image": torch.linspace(-1, 1, 8 * 64).double().view(8, *SHAPE)},
        )
        step += 1


def game(d: nn.Module, *, groups=(), g_penalties=(), **options) -> pg.GAN:
    torch.manual_seed(1)
    g = nn.Sequential(nn.Linear(3, 64), nn.Unflatten(1, SHAPE)).double()
    g, d = [
        pg.Player(side=Side.G, net=g, policy=pg.Policy(kind=torch.optim.SGD, lr=0.1)),
        pg.Player(side=Side.D, net=d, policy=pg.Policy(kind=torch.optim.SGD, lr=0.1, groups=groups)),
    ]
    prior = pg.Prior(seed=0, latent=3, dtype=torch.float64)
    chosen = pg.AdversarialOptions(**options)
    return pg.GAN(g=g, d=d, loss=pg.least_squares_loss, prior=prior, g_penalties=g_penalties, adversarial=chosen)


def test_outputs_are_named_by_mapping_list_and_path():
    output = pg.DiscriminatorOutput.of(several()(torch.ones(4, *SHAPE).double()))
    assert tuple(output.by_name) == NAMES
    assert [member.logits_B.shape for member in output.members.values()] == [(4, 2), (4, 5), (4, 7)]
    means = [member.logits_B.mean(1) for member in output.members.values()]
    assert torch.equal(output.logits_B, torch.stack(means, 1))
    assert [len(member.layers) for member in output.members.values()] == [2, 2, 2] and output.layers == ()
    assert tuple(pg.DiscriminatorOutput.of([torch.ones(2), torch.ones(2, 3)]).by_name) == ("0", "1")
    assert pg.DiscriminatorOutput.of({"a": output}).by_name.keys() == {f"a/{name}" for name in NAMES}
    with pytest.raises(pg.ConfigError, match=r"^model: D returned no output; return one for each discriminator$"):
        pg.DiscriminatorOutput.of([])


@pytest.mark.parametrize(
    ("nets", "message"),
    [
        ({"mpd": "net"}, "discriminator mpd is a str; pass a torch.nn.Module"),
        ({"mpd": Small}, "discriminator mpd is a type; pass a torch.nn.Module"),
        *(
            ({name: nn.Linear(1, 1)}, f"a discriminator cannot be called {name!r}; use another name, such as mpd")
            for name in ("keys", "training", "a/b", "a.b", "")
        ),
    ],
)
def test_invalid_names_and_modules_are_one_line(nets, message):
    with pytest.raises(pg.ConfigError) as error:
        pg.Discriminators(**nets)
    assert str(error.value) == message


def test_split_cuts_every_member_and_layer():
    output = pg.DiscriminatorOutput.of(several()(torch.randn(5, *SHAPE).double()))
    first, second = output.split([2, 3])
    for name, member in output.members.items():
        halves = [first.by_name[name], second.by_name[name]]
        assert torch.equal(torch.cat([half.logits_B for half in halves]), member.logits_B)
        layers = zip(*(half.layers for half in halves), member.layers, strict=True)
        assert all(torch.equal(torch.cat([a, b]), whole) for a, b, whole in layers)
    assert torch.equal(torch.cat([first.logits_B, second.logits_B]), output.logits_B)


def test_autocast_returns_float32_for_every_member():
    net = CalledNetwork(module=several().float(), calling=Calling(torch.bfloat16))
    output = pg.DiscriminatorOutput.of(net(torch.ones(2, *SHAPE)))
    assert {member.logits_B.dtype for member in output.members.values()} == {torch.float32}
    assert all(layer.dtype == torch.float32 for member in output.members.values() for layer in member.layers)


@pytest.mark.parametrize(
    ("combine", "weights", "expected"),
    [
        ("sum", {}, (1, 1, 1)),
        ("mean", {}, (1 / 2, 1 / 2, 1)),
        ("mean", {"mpd": 3.0}, (3 / 2, 3 / 2, 1)),
        ("sum", {"mpd": 3.0, "mpd/1": 0.5, "msd": 0.0}, (3, 0.5, 0)),
    ],
)
def test_weights_are_by_name_or_list(combine, weights, expected):
    found = discriminator_weights(NAMES, combine, weights, "key")
    assert tuple(found.values()) == pytest.approx(expected)


def test_record_has_every_discriminator_next_to_the_total():
    gan = game(several(), weights={"mpd": 0.25})
    z, _ = gan.prior.draw("d", pg.Rows(step=0, first=0, count=8, total=8))
    real = several()(next(batches()).image)
    fake = several()(gan.g.net(z).detach())
    found = synchronous.step(gan, batches()).read()
    pairs = zip((*real["mpd"], real["msd"]), (*fake["mpd"], fake["msd"]), strict=True)
    for name, ((on_real, _), (on_fake, _)) in zip(NAMES, pairs, strict=True):
        loss = ((on_real - 1).square().mean() + on_fake.square().mean()) / 2
        assert found[f"d/loss/adversarial/{name}"] == pytest.approx(loss.item())
        assert found[f"d/real/{name}"] == pytest.approx(on_real.mean().item())
        assert found[f"d/fake/{name}"] == pytest.approx(on_fake.mean().item())
    for side in "dg":
        first, second, third = (found[f"{side}/loss/adversarial/{name}"] for name in NAMES)
        assert found[f"{side}/loss/adversarial"] == pytest.approx((first + second) / 4 + third)
    assert found["d/real"] == pytest.approx(sum(found[f"d/real/{name}"] for name in NAMES) / 3)


def test_one_discriminator_in_a_mapping_is_the_plain_one_bit_for_bit():
    def trained(d):
        gan = game(d)
        stream = batches()
        reports = [synchronous.step(gan, stream).read() for _ in range(3)]
        return reports, [p.detach() for player in (gan.g, gan.d) for p in player.net.parameters()]

    torch.manual_seed(5)
    plain = Small(4).double()
    alone = pg.Discriminators(msd=Small(4)).double()
    alone.load_state_dict({f"msd.{name}": value.clone() for name, value in plain.state_dict().items()})
    reports, weights = trained(plain)
    of_mapping, same = trained(alone)
    assert all(map(torch.equal, weights, same))
    assert [{name: one[name] for name in reports[0]} for one in of_mapping] == reports


def test_parameter_groups_are_by_discriminator():
    gan = game(several(), groups=({"match": "msd.*", "lr": 0.01},))
    msd, rest = sorted((g["param_names"] for g in gan.d.optimizer.param_groups), key=len)
    assert all(name.startswith("msd.") for name in msd) and all(name.startswith("mpd.") for name in rest)
    before = {name: value.detach().clone() for name, value in gan.d.net.named_parameters()}
    without = game(several())
    for one in (gan, without):
        synchronous.step(one, batches())
    for name, value in without.d.net.named_parameters():
        factor = 0.1 if name.startswith("msd.") else 1.0
        moved = dict(gan.d.net.named_parameters())[name] - before[name]
        torch.testing.assert_close(moved, factor * (value - before[name]), rtol=1e-9, atol=1e-14)


def test_each_discriminator_is_a_block_of_shards():
    net = several()
    assert blocks(net) == [*net["mpd"].nets, net["msd"]]


def naive_matching(real, fake, factors=(1, 1, 1), mean_of_layers=False):
    total = 0
    for factor, (_, layers), (_, made) in zip(factors, real, fake, strict=True):
        each = [(r - f).abs().flatten(1).mean(1) for r, f in zip(layers, made, strict=True)]
        total = total + factor * sum(each) / (len(each) if mean_of_layers else 1)
    return total


@pytest.mark.parametrize(
    ("options", "factors", "mean_of_layers"),
    [
        ({}, (1, 1, 1), False),
        ({"discriminators": "mean", "weights": {"msd": 0.1}}, (0.5, 0.5, 0.1), False),
        ({"layers": "mean"}, (1, 1, 1), True),
    ],
)
def test_feature_matching_by_layer_is_the_papers(options, factors, mean_of_layers):
    d = several()
    pair = {**nets(), Side.D: d}
    penalty = pg.FeatureMatchingL1Penalty(pg.FeatureMatchingL1Options(weight=6.0, **options))
    played = turn(Side.G, penalty)
    g, feed = pair[Side.G], played.feed
    real, fake = (d(x) for x in (feed.real.image, g(feed.latent, feed.label)))
    both = ([*found["mpd"], found["msd"]] for found in (real, fake))
    assert_plain(played, pair, 6 * naive_matching(*both, factors, mean_of_layers))


def test_feature_matching_names_the_discriminator_without_features():
    class Plain(nn.Linear):
        def forward(self, x, y=None):
            return super().forward(x.flatten(1))

    d = pg.Discriminators(msd=Small(2), bare=Plain(64, 1)).double()
    penalty = pg.FeatureMatchingL1Penalty(pg.FeatureMatchingL1Options())
    message = r"^penalty feature_matching_l1 needs discriminator bare that returns features; let D return paragan"
    with pytest.raises(pg.ConfigError, match=message):
        play(turn(Side.G, penalty), {**nets(), Side.D: d})


@pytest.mark.parametrize("name", ["r1", "r2", "gradient_penalty", "consistency", "feature_matching"])
def test_penalties_add_over_discriminators(name):
    """The value of several is the sum of the values of each one alone."""
    made = {
        "r1": pg.R1Penalty(pg.R1Options(weight=1.5)),
        "r2": pg.R2Penalty(pg.R2Options(weight=1.5)),
        "gradient_penalty": pg.GradientPenalty(pg.GradientPenaltyOptions()),
        "consistency": pg.ConsistencyPenalty(pg.ConsistencyOptions(fake_weight=3.0)),
        "feature_matching": pg.FeatureMatchingPenalty(pg.FeatureMatchingOptions()),
    }[name]

    class Only(nn.Module):
        def __init__(self, path):
            super().__init__()
            self.net, self.path = several(), path

        def forward(self, x, y=None):
            member = pg.DiscriminatorOutput.of(self.net(x)).by_name[self.path]
            return pg.DiscriminatorOutput(member.logits_B, member.features)

    def value(d):
        return play(turn(made.side, made), {**nets(), Side.D: d})[0].loss_B[name]

    alone = [value(Only(path)) for path in NAMES]
    torch.testing.assert_close(value(several()), sum(alone), rtol=1e-12, atol=0)
    assert all((one > 0).all() for one in alone) and len(alone[0]) == BATCH


@pytest.mark.parametrize("name", ["lecam", "auxiliary", "contrastive", "data_to_data"])
def test_penalties_of_one_discriminator_refuse_several_in_one_line(name):
    made = {
        "lecam": pg.LeCamPenalty(pg.LeCamOptions()),
        "auxiliary": pg.AuxiliaryPenalty(pg.AuxiliaryOptions()),
        "contrastive": pg.ContrastivePenalty(pg.ContrastiveOptions()),
        "data_to_data": pg.DataToDataPenalty(pg.DataToDataOptions()),
    }[name]
    message = rf"^penalty {name} does not support several discriminators \(mpd/0, mpd/1, msd\); leave it out, or let D"
    with pytest.raises(pg.ConfigError, match=message):
        play(turn(made.side, made), {**nets(), Side.D: several()})
