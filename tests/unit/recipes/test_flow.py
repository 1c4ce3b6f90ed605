"""Flow U-Net: its objective and solver against the plainest loops, noise and time of D's inputs, distillation."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import paragan as pg
from paragan import build
from paragan.augment import flow_noise
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Turn
from paragan.core.types import Batch, LossTerms, Rows, Side, TurnInputs
from paragan.game.network import CalledNetwork
from paragan.game.sampling import steps_protocol, with_steps
from paragan.layers.init import initialise
from paragan.loading.loader import Loader
from paragan.models import dcgan, flow_unet
from paragan.parallel import none
from paragan.penalties import distillation, flow_matching

SHAPE, CLASSES, BATCH, SEED = (1, 8, 8), 3, 6, 11
ROWS = Rows(step=4, first=0, count=BATCH, total=BATCH)
SMALL = ["data.size=8", "model.width=8", "train.batch=8", "evaluation.features=null", "every.sample_kimg=0"]
SMALL += ["every.log_steps=1"]


def network(side: str = "Generator", seed: int = SEED, **wanted) -> torch.nn.Module:
    net = getattr(flow_unet, side)(flow_unet.Options(width=8, embed=5, **wanted), SHAPE, CLASSES)
    initialise(net.double(), seed, side)
    with torch.no_grad():
        for number, weight in enumerate(net.parameters()):  # the last layer starts at 0
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)).double(), alpha=0.1)
    return net


def test_first_map_without_room_for_the_pixels_of_a_patch_is_refused():
    """All noise of a position passes through it: 3 colours of 2 x 2 pixels are 12 numbers."""
    with pytest.raises(ConfigError, match=r"^model\.width: a patch of 2 x 2 pixels has 12 numbers, .* give 12 or more"):
        flow_unet.Generator(flow_unet.Options(width=8), (3, 32, 32), 10)
    flow_unet.Generator(flow_unet.Options(width=12), (3, 32, 32), 10)


def inputs(rows: Rows = ROWS) -> TurnInputs:
    x = rng.uniform(SEED, "x", rows, SHAPE).double() * 2 - 1
    real = Batch(rows, {"image": x, "label": rng.integers(SEED, "real/y", rows, CLASSES)})
    drawn = {"latent": rng.normal(SEED, "z", rows, (64,)).double(), "label": rng.integers(SEED, "y", rows, CLASSES)}
    return TurnInputs(rows=rows, seed=SEED, tensors=drawn, real=real)


def gradients(net, penalty, parts=1, chain=()):
    nets = {Side.G: CalledNetwork(module=net), Side.D: CalledNetwork(module=network("Discriminator"))}
    turn = Turn(
        side=Side.G,
        chain=chain,
        feed=inputs(),
        objective=lambda outputs, feed: LossTerms({}),
        penalties=(penalty,),
        needs_real=False,
    )
    net.zero_grad()
    terms = none.Strategy().forward_backward(turn, nets, parts)
    return terms.loss_B[penalty.name], [weight.grad.clone() for weight in net.parameters()]


def test_flow_matching_equals_the_plainest_loop():
    net = network()
    found = gradients(net, flow_matching.Penalty(flow_matching.Options(weight=3.0)))
    net.zero_grad()
    feed = inputs()
    losses = []
    for row in range(BATCH):
        x = feed.real.image[row : row + 1]
        t = rng.uniform(SEED, "flow_matching/time", ROWS, ())[row].double()
        n = rng.normal(SEED, "flow_matching/noise", ROWS, SHAPE)[row : row + 1].double()
        v = net(((1 - t) * x + t * n).flatten(1), feed.real.label[row : row + 1], t[None])
        losses.append(3 * (v - n + x).pow(2).mean())
    (torch.stack(losses).sum() / BATCH).backward()
    torch.testing.assert_close(found[0], torch.stack(losses).detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found[1], [weight.grad for weight in net.parameters()], rtol=1e-10, atol=1e-12)


def test_flow_matching_without_a_flow_is_refused():
    net = dcgan.Generator(dcgan.Options(width=4, latent=64), SHAPE, 0).double()
    with pytest.raises(ConfigError, match=r"^penalty flow_matching needs a generator of velocities; use .*flow_unet$"):
        gradients(net, flow_matching.Penalty(flow_matching.Options()))


def test_turn_of_flow_matching_calls_no_network_on_latents():
    config = read_recipe("flow-digits", [*SMALL, "model.steps=7"])
    found = build.open_data(config)
    game = build.gan(config, found, torch.device("cpu"))
    batches = Loader(found.train, 8, 0, torch.device("cpu"))
    game.g.net.blocks[0].solve = None  # calling it would fail
    before = {name: value.clone() for name, value in game.d.net.state_dict().items()}
    numbers = build.scheme(config).step(game, batches).read()
    assert numbers["g/loss/flow_matching"] > 0
    assert game.g.version == 1
    assert game.d.version == 0
    assert all(torch.equal(before[name], value) for name, value in game.d.net.state_dict().items())


@pytest.mark.parametrize("solver", ["euler", "heun"])
@pytest.mark.parametrize("steps", [1, 4])
def test_solver_equals_the_plainest_loop(solver, steps):
    net = network(steps=steps, solver=solver)
    z = rng.normal(0, "z", ROWS, (64,)).double()
    y = torch.arange(BATCH) % CLASSES

    def velocity(x, time):
        return net(x.flatten(1), y, torch.full((BATCH,), time, dtype=torch.float64))

    x = z.view(BATCH, *SHAPE)
    for step in range(steps):
        start, end = 1 - step / steps, 1 - (step + 1) / steps
        slope = velocity(x, start)
        if solver == "heun" and end > 0:
            slope = (slope + velocity(x - slope / steps, end)) / 2
        x = x - slope / steps
    torch.testing.assert_close(net(z, y), x, rtol=1e-12, atol=1e-12)


def test_steps_change_inside_the_block_only():
    net = network(steps=2)
    z = rng.normal(0, "z", ROWS, (64,)).double()
    y = torch.zeros(BATCH, dtype=torch.int64)
    two = net(z, y)
    with with_steps(net, 5):
        assert steps_protocol(net) == {"steps": 5}
        assert not torch.equal(net(z, y), two)
    assert torch.equal(net(z, y), two)
    plain = torch.nn.Linear(1, 1)
    assert steps_protocol(plain) == {}
    with (
        pytest.raises(ConfigError, match=r"^steps: this generator makes one step; leave it out$"),
        with_steps(plain, 2),
    ):
        pass
    with pytest.raises(ConfigError, match=r"^steps=0 must be an integer from 1; change it$"), with_steps(net, 0):
        pass


def test_flow_noise_equals_the_formula_and_appends_the_time():
    x = rng.uniform(SEED, "x", ROWS, SHAPE).double()
    out = flow_noise.Augment(flow_noise.Options(largest=0.5))(x, 7, "s", ROWS)
    t = 0.5 * rng.uniform(7, "s/time", ROWS, ()).double()[:, None, None, None]
    noise = rng.normal(7, "s/noise", ROWS, SHAPE).double()
    torch.testing.assert_close(out[:, :1], (1 - t) * x + t * noise, rtol=1e-12, atol=1e-12)
    assert torch.equal(out[:, 1:], t.expand(-1, 1, 8, 8))
    clean = flow_noise.Augment(flow_noise.Options(largest=0.5, noise=False))(x, 7, "s", ROWS)
    assert torch.equal(clean[:, :1], x)
    assert torch.equal(clean[:, 1:], out[:, 1:])


def test_discriminator_reads_the_time_of_the_last_channel():
    net = network("Discriminator")
    x = rng.uniform(SEED, "x", ROWS, SHAPE).double()
    y = torch.arange(BATCH) % CLASSES

    def at(time):
        return net(torch.cat([x, torch.full_like(x, time)], 1), y).logits_B

    assert torch.equal(at(0.0), net(x, y).logits_B)
    assert (at(0.5) - at(0.0)).abs().min() > 1e-6


def test_distillation_equals_the_plainest_loop(tmp_path):
    teacher = network(seed=SEED + 1).float().double()  # the file has float32, as every export
    path = tmp_path / "generator.safetensors"
    save_file({name: value.float().contiguous() for name, value in teacher.state_dict().items()}, path)
    net = network()
    options = distillation.Options(weight=2.0, teacher=str(path))
    loss_B, found = gradients(net, distillation.Penalty(options), chain=(Side.G,))
    net.zero_grad()
    feed = inputs()
    x = net(feed.latent, feed.label)
    t = 0.1 + 0.9 * rng.uniform(SEED, "distillation/time", ROWS, ()).double()
    n = rng.normal(SEED, "distillation/noise", ROWS, SHAPE).double()
    t4 = t[:, None, None, None]
    noised = ((1 - t4) * x + t4 * n).detach()
    target = (noised - t4 * teacher(noised.flatten(1), feed.label, t)).detach()
    expected = 2 * (x - target).pow(2).flatten(1).mean(1)
    (expected.sum() / BATCH).backward()
    torch.testing.assert_close(loss_B, expected.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found, [weight.grad for weight in net.parameters()], rtol=1e-10, atol=1e-12)


def test_teacher_that_is_missing_or_does_not_fit_is_refused_in_one_line(tmp_path):
    path = tmp_path / "other.safetensors"
    with pytest.raises(
        ConfigError, match=r"^penalty distillation: teacher is required; pass generator.safetensors .*$"
    ):
        gradients(network(), distillation.Penalty(distillation.Options()), chain=(Side.G,))
    with pytest.raises(ConfigError, match=r"^penalty distillation: teacher .* does not exist; give .*$"):
        distillation.Penalty(distillation.Options(teacher=str(path)))
    path.write_text("no weights")
    with pytest.raises(ConfigError, match=r"^penalty distillation: teacher .* cannot be read \(.*\); give .*$"):
        distillation.Penalty(distillation.Options(teacher=str(path)))
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ConfigError, match=r"^penalty distillation: the teacher does not fit G \(.*\); give one .*$"):
        gradients(network(), distillation.Penalty(distillation.Options(teacher=str(path))), chain=(Side.G,))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flow") / "teacher"
    assert main(["train", "flow-digits", *SMALL, "model.steps=3", "train.kimg=0.016", "--out", str(folder)]) == 0
    assert main(["export", str(folder)]) == 0
    return folder


def test_discriminator_from_the_exported_encoder_has_only_new_heads(teacher, tmp_path, capsys):
    file = str(teacher / "export" / "generator.safetensors")
    words = ["fewstep-digits", *SMALL, f"g.init={file}", f"d.init.path={file}", "train.kimg=0.016"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    new = said[said.index("as initialised: ") : said.index(", not used: ")].split(": ", 1)[1].split(", ")
    heads = [name for name, _ in network("Discriminator").named_parameters() if name.startswith("blocks.1.")]
    assert [name.partition(" ")[0] for name in new] == heads
    assert "G all 67 tensors" in said
    assert any("d/loss/approximate_r1" in entry for entry in pg.Run(tmp_path / "run").history)


def test_resume_with_another_teacher_is_refused(teacher, tmp_path, capsys):
    file = tmp_path / "teacher.safetensors"
    weights = load_file(teacher / "export" / "generator.safetensors")
    save_file(weights, file)
    term = f"penalties=[{{name: distillation, teacher: {file}}}]"
    words = ["train", "fewstep-digits", *SMALL, "g.init=null", "d.init=null", term, "--out", str(tmp_path / "run")]
    assert main([*words, "train.kimg=0.016"]) == 0
    save_file({name: value + 1 for name, value in weights.items()}, file)
    capsys.readouterr()
    assert main([*words, "train.kimg=0.032"]) == 2
    assert "g: the frozen network of penalty distillation had other weights" in capsys.readouterr().err


def test_steps_of_sample_export_and_load_agree(teacher, tmp_path):
    generator = pg.load(teacher)
    four = generator.sample(3, steps=4).tensor
    assert not torch.equal(four, generator.sample(3).tensor)  # 3 steps, as in its config
    assert main(["export", str(teacher), "--steps", "4", "--out", str(tmp_path / "four.safetensors")]) == 0
    assert torch.equal(pg.load(tmp_path / "four.safetensors").sample(3).tensor, four)
    assert main(["sample", str(teacher), "--steps", "2", "--num", "4", "--out", str(tmp_path / "two.png")]) == 0
    assert (tmp_path / "two.png").is_file()
