"""Weights that change in a run, and the starts of D and of G's adversarial loss."""

import math

import pytest
import torch
from torch import nn

import paragan as pg
from paragan import build
from paragan.config import read_recipe
from paragan.core import registry
from paragan.core.dist import ALONE, World
from paragan.core.roles import Roles
from paragan.core.types import Side
from paragan.core.weight_schedule import WeightSchedule, images_of, weight_at
from paragan.extensions.parameter_server.schemes import parameter_server
from paragan.game.state import state_of
from paragan.losses import hinge
from paragan.penalties import lecam, r1
from paragan.schemes import asynchronous, extragradient, shared_fakes, skipping, synchronous
from tests.tiny_run import SMALL, TINY

BATCH = 8
RAMP = WeightSchedule(start=0.0, final=0.8, from_kimg=0.016, to_kimg=0.048)


def rows(step, first=0, count=BATCH):
    return pg.Rows(step=step, first=first, count=count, total=BATCH)


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (0.3, [0.3] * 8),
        (WeightSchedule(start=1.0, final=0.5, from_kimg=0.016, shape="step"), [1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]),
        (RAMP, [0, 0, 0, 0.2, 0.4, 0.6, 0.8, 0.8]),
        (
            WeightSchedule(start=1.0, final=0.0, from_kimg=0.016, to_kimg=0.048, shape="cosine"),
            [1, 1, 1, (1 + math.cos(math.pi / 4)) / 2, 0.5, (1 + math.cos(math.pi * 0.75)) / 2, 0, 0],
        ),
    ],
)
def test_weight_follows_its_schedule_by_images_on_any_rank(schedule, values):
    found = [weight_at(schedule, rows(step)) for step in range(8)]
    assert found == pytest.approx(values, abs=1e-12)
    assert found == [weight_at(schedule, rows(step, first=5, count=3)) for step in range(8)]


def test_kimg_are_whole_images():
    assert images_of(1.001) == 1001  # in floats 1000.9999…


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"from_kimg": 2.0, "to_kimg": 2.0}, "to_kimg must be greater than from_kimg=2 for shape linear"),
        ({"shape": "cosine"}, "set to_kimg to the end of the change, or shape to step"),
        ({"to_kimg": 3.0, "shape": "step"}, "to_kimg=3 has no effect with shape step; leave it out"),
    ],
)
def test_schedule_without_a_change_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        WeightSchedule(start=1.0, final=2.0, **settings)


def test_config_takes_a_number_or_a_map_wherever_a_weight_is():
    fade = "{start: 1, final: 0.1, from_kimg: 2, to_kimg: 4, shape: cosine}"
    config = read_recipe("digits", [f"penalties=[{{name: r1, weight: {fade}}}, r2]", "adversarial.weight=0.5"])
    schedule = WeightSchedule(start=1.0, final=0.1, from_kimg=2.0, to_kimg=4.0, shape="cosine")
    assert config.penalties[0].options.weight == schedule
    assert (config.penalties[1].options.weight, config.adversarial.weight) == (10.0, 0.5)
    assert read_recipe("digits", [f"adversarial.weight={fade}"]).adversarial.weight == schedule


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x", "adversarial.weight: must be a number >= 0 or a map of start, final, from_kimg, to_kimg, shape, not 'x'"),
        (
            "{start: 1, finl: 2}",
            "finl: unknown key; choose one of start, final, from_kimg, to_kimg, shape; did you mean",
        ),
        ("{final: 2, to_kimg: 3}", "adversarial.weight.start is required"),
    ],
)
def test_config_names_what_is_wrong_with_a_weight(value, message):
    with pytest.raises(pg.ConfigError) as caught:
        read_recipe("digits", [f"adversarial.weight={value}"])
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1 + ("finl" in value)


@pytest.mark.parametrize("name", registry.names("penalties"))
def test_every_penalty_reads_its_schedule(name):
    file = registry.load_module("penalties", name)
    lazy = {"interval": 3} if "interval" in file.Options.__dataclass_fields__ else {}
    times = lazy.get("interval", 1)
    made = file.Penalty(file.Options(weight=RAMP, **lazy))
    weights = [weight_at(weight, rows(4)) for weight in getattr(made, "weights", [made.weight])]
    assert weights[0] == pytest.approx(0.4)
    if not hasattr(made, "weights"):
        assert made.weight_at(rows(4)) == pytest.approx(0.4 * times)
        assert [made.is_due(0, rows(step)) for step in range(8)] == [False] * 3 + [True] * 5
    assert made.is_due(1, rows(4)) is not bool(lazy)


class Counted(nn.Module):
    """A network that counts its calls."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.layers(x)


def game(adversarial, *, g_penalties=None, per_step=1, **more):
    torch.manual_seed(0)
    policy = pg.Policy(kind=torch.optim.Adam, lr=0.01)
    g = pg.Player(side=pg.Side.G, net=Counted(nn.Linear(3, 4)).double(), policy=policy)
    d = Counted(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1), nn.Flatten(0)).double()
    d_player = pg.Player(
        side=pg.Side.D, net=d, policy=pg.Policy(kind=torch.optim.Adam, lr=0.01, updates_per_step=per_step)
    )
    if g_penalties is None:
        g_penalties = (
            pg.Term(name="l1", function=lambda outputs, inputs: (outputs.images - inputs.real_sample).abs()),
        )
    prior = pg.Prior(seed=0, latent=3, dtype=torch.float64, discriminator_arguments=("point",))
    loss = pg.Loss(hinge.d_loss, hinge.g_loss)
    made = pg.GAN(g=g, d=d_player, loss=loss, prior=prior, g_penalties=g_penalties, adversarial=adversarial, **more)
    return made


def batches():
    generator = torch.Generator().manual_seed(1)
    step = 0
    while True:
        point = torch.randn(BATCH, 4, generator=generator, dtype=torch.float64)
        yield pg.Batch(rows(step), {"point": point})
        step += 1


SCHEMES = {"synchronous": synchronous, "shared_fakes": shared_fakes.Scheme(), "skipping": skipping.Scheme()}


@pytest.mark.parametrize("name", SCHEMES)
def test_d_does_not_run_before_it_is_needed(name):
    gan = game(pg.AdversarialOptions(start_kimg=0.032, d_start_kimg=0.032))
    stream = batches()
    reports = [SCHEMES[name].step(gan, stream) for _ in range(4)]
    assert (gan.d.net.calls, gan.d.version, gan.g.version) == (0, 0, 4)
    assert next(stream).rows.step == 4  # the data went on
    assert set(reports[-1].scalars) == {"g/loss/l1", "g/gradient_norm"}
    assert [report.weights for report in reports] == [{"g/weight/adversarial": 0.0}] * 4
    report = SCHEMES[name].step(gan, stream)
    assert report.weights == {"g/weight/adversarial": 1.0}
    assert (gan.d.version, gan.d.net.calls) == (1, 2)
    assert {"g/loss/l1", "g/loss/adversarial", "d/loss/adversarial"} <= report.scalars.keys()


def test_d_stays_whole_before_its_start():
    penalties = (lecam.Penalty(lecam.Options()), r1.Penalty(r1.Options(weight=RAMP)))
    gan = game(pg.AdversarialOptions(d_start_kimg=0.016), per_step=2, d_penalties=penalties)
    before = {name: value.clone() for name, value in state_of(gan.d)[0].tensors.items()}
    stream = batches()
    synchronous.step(gan, stream)
    after, counts = state_of(gan.d)
    assert counts == {"version": 0, "images": 0, "due_turns": 0}
    assert before.keys() == after.tensors.keys()
    assert all(torch.equal(before[name], after.tensors[name]) for name in before)
    assert (gan.clock.images, gan.g.version) == (16, 1)
    synchronous.step(gan, stream)
    assert gan.d.version == 2
    assert gan.d.state["lecam/updates"] == 2


def test_g_runs_through_d_if_a_penalty_needs_it():
    reads_d = pg.Term(name="logit", function=lambda outputs, inputs: outputs.fake.logits_B, uses_discriminator=True)
    gan = game(pg.AdversarialOptions(start_kimg=1.0, d_start_kimg=1.0), g_penalties=(reads_d,))
    report = synchronous.step(gan, batches())
    assert gan.d.net.calls == 1
    assert set(report.scalars) == {"g/loss/logit", "g/gradient_norm"}


def test_term_that_reads_a_d_that_did_not_run_is_refused():
    reads_d = pg.Term(name="logit", function=lambda outputs, inputs: outputs.fake.logits_B)
    gan = game(pg.AdversarialOptions(start_kimg=1.0), g_penalties=(reads_d,))
    with pytest.raises(pg.ConfigError, match=r"reads D's output \(logits_B\).*set uses_discriminator = True"):
        synchronous.step(gan, batches())


def test_weight_scales_gradients_of_the_adversarial_loss_alone():
    """G's gradient is that of the plain sum, in float64."""
    gan = game(pg.AdversarialOptions(weight=RAMP))
    g, d = gan.g.net, gan.d.net
    for step, real in zip(range(6), batches(), strict=False):
        z, _ = gan.prior.draw("g", real.rows)
        fake = g(z)
        plain = (fake - real.tensors["point"]).abs().mean(1) + (0, 0, 0, 0.2, 0.4, 0.6)[step] * -d(fake)
        expected = torch.autograd.grad(plain.mean(), g.layers[0].weight)[0]
        gan.g.compute_gradients(gan.g_turn(real), against=gan.d)
        torch.testing.assert_close(g.layers[0].weight.grad, expected, rtol=1e-12, atol=1e-15)
        g.zero_grad()


def test_update_without_any_loss_is_left_out():
    late = pg.Term(
        name="l1",
        function=lambda outputs, inputs: outputs.images.abs(),
        weight=WeightSchedule(start=0, final=1, from_kimg=0.016, shape="step"),
    )
    gan = game(pg.AdversarialOptions(start_kimg=0.032), g_penalties=(late,))
    stream = batches()
    for _ in range(3):
        synchronous.step(gan, stream)
    assert (gan.g.version, gan.d.version) == (1, 3)


@pytest.mark.parametrize("options", [{"start_kimg": 1.0}, {"weight": 0.0}, {"weight": RAMP}])
def test_g_without_a_loss_is_refused(options):
    with pytest.raises(pg.ConfigError, match=r"adversarial: G has no loss at the first batch.*add a penalty of G"):
        game(pg.AdversarialOptions(**options), g_penalties=())


def test_schemes_without_pauses_of_d_refuse_them():
    gan = game(pg.AdversarialOptions(d_start_kimg=1.0), g_penalties=())
    for scheme in (extragradient.Scheme(), asynchronous.Scheme()):
        with pytest.raises(pg.ConfigError, match=rf"adversarial.d_start_kimg .* scheme {scheme.name}"):
            scheme.refuse(gan, tensors={})
    with pytest.raises(pg.ConfigError, match=r"adversarial.d_start_kimg .* scheme asynchronous"):
        asynchronous.Scheme().step(gan, batches())
    server = parameter_server.Scheme()
    server._roles = Roles(world=World(size=2), batch_world=ALONE, ranks={side: range(1) for side in Side})
    with pytest.raises(pg.ConfigError, match=r"adversarial.d_start_kimg .* scheme parameter_server"):
        server.refuse(gan, tensors={})


def test_g_batch_refuses_weights_by_images_of_d():
    gan = game(pg.AdversarialOptions(weight=WeightSchedule(start=0.5, final=1, to_kimg=1)), g_penalties=())
    scheme = asynchronous.Scheme(asynchronous.Options(g_batch=4))
    with pytest.raises(pg.ConfigError, match=r"adversarial.weight .* scheme.g_batch=4"):
        scheme.refuse(gan, tensors={})


def test_run_records_weights_and_says_when_terms_begin(tmp_path):
    words = ["penalties=[{name: orthogonal, side: g}, {name: r1, weight: {start: 1, final: 0, to_kimg: 0.064}}]"]
    words += ["augment=ada", "adversarial.start_kimg=0.032", "adversarial.d_start_kimg=0.016", "every.log_steps=1"]
    config = read_recipe("digits", [*TINY, *SMALL, *words, "every.sample_kimg=0.016"])
    events = list(build.trainer(config, tmp_path, print, stop=lambda: False).run())
    texts = [event.values["text"] for event in events if event.kind == "event"]
    assert "D trains from 0.016 kimg on" in texts
    assert "G: the adversarial loss begins at 0.032 kimg" in texts
    assert "D: weight of r1: 1 to 0, linear from 0 to 0.064 kimg" in texts
    steps = [event.values for event in events if event.kind == "step"]
    assert [step["g/weight/adversarial"] for step in steps] == [0, 0, 1, 1]
    assert [step["d/weight/r1"] for step in steps] == pytest.approx([1, 0.75, 0.5, 0.25])
    assert ["d/loss/adversarial" in step for step in steps] == [False, True, True, True]
    telemetry = [event.values for event in events if event.kind == "telemetry"]
    assert "d/accuracy_fake" not in telemetry[0]
    assert "d/accuracy_fake" in telemetry[-1]
