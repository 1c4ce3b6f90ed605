"""n steps, a save, new objects, n steps are 2n steps, bit for bit: weights, averages, optimisers, states, counters."""

import pytest
import torch

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.game.state import state_of

STEPS, BATCH = 4, 8
ALL = ("data.size=8", f"train.batch={BATCH}", "every.sample_kimg=0", "every.save_kimg=1", "every.score_kimg=0")
ALL += ("evaluation.features=null", "train.kimg=1")
NET = ("model.width=4", "model.latent=8")
SMALL_FLOW = ("model.width=8",)


def optimizers(g: str, d: str) -> tuple[str, str]:
    return f"g.optimizer={{name: {g}, lr: 1e-3}}", f"d.optimizer={{name: {d}, lr: 1e-3}}"


LORA = "g.adapter={name: lora, rank: 2}"
FALLING = "{name: r1, weight: {start: 2, final: 0.1, to_kimg: 0.05}}"
DMD2 = (*SMALL_FLOW, "g.init=TEACHER", "d.init.path=TEACHER", "players.fake_score.init=TEACHER")
DMD2 += ("penalties=[{name: distribution_matching, teacher: TEACHER}, fake_flow_matching, approximate_r1]",)
# recipe and settings; TEACHER: an exported flow
GAMES = {
    "digits": ("digits", *NET),
    "lazy R1, LeCam, k=2": ("digits", *NET, "penalties=[{name: r1, interval: 5}, lecam]", "d.updates_per_step=2"),
    "ADA": ("digits", *NET, "augment={name: ada, target: 0.1, p: 0.2, kimg: 0.2, interval: 3}"),
    "coin of D": ("digits", *NET, "d.update_probability=0.5"),
    "skipping, schedules": (
        "digits",
        *NET,
        "scheme=skipping",
        "g.schedule={name: cosine, end: 9}",
        "d.schedule={name: restarts, period: 3, growth: 2}",
    ),
    "extragradient": ("digits", *NET, "scheme=extragradient", *optimizers("optimistic_adam", "adabelief")),
    "pure, micro-batches, clipping": (
        "digits",
        *NET,
        "g.precision=pure",
        "d.precision=pure",
        "g.micro_batches=2",
        "d.micro_batches=2",
        "g.max_norm=0.3",
        "d.max_norm=0.3",
        "scheme=synchronous",
    ),
    "StyleGAN2": (
        "digits",
        "model={name: stylegan2, latent: 8, style: 8, width: 4, mapping: 2}",
        "scheme=synchronous",
        "penalties=[{name: path_length, interval: 3}, {name: r1, interval: 2}]",
    ),
    "ContraGAN, RaGAN": (
        "digits",
        "model={name: contragan, latent: 8, width: 4}",
        "loss=relativistic_average",
        "scheme=synchronous",
        "penalties=[contrastive]",
    ),
    "FastGAN": (
        "digits",
        "model={name: fastgan, latent: 8, width: 4}",
        "loss=hinge",
        "augment=diffaugment",
        "penalties=[reconstruction]",
    ),
    "NAdam, RMSprop": ("digits", *NET, *optimizers("NAdam", "RMSprop")),
    "RAdam, Adafactor": ("digits", *NET, *optimizers("RAdam", "Adafactor")),
    "ASGD, Rprop": ("digits", *NET, *optimizers("ASGD", "Rprop")),
    "falling R1, later D, postponed turns of G": (
        "digits",
        *NET,
        f"penalties=[{FALLING}, {{name: orthogonal, side: g, interval: 2}}]",
        "adversarial.d_start_kimg=0.016",
        "adversarial.start_kimg=0.024",
        "scheme=synchronous",
    ),
    "balancer": (
        "digits",
        "model={name: mlp, latent: 8}",
        "balancer={name: gradient_balancer, decay: 0.5}",
        "penalties=[{name: orthogonal, side: g}]",
        "scheme=shared_fakes",
    ),
    "freeze": ("digits", *NET, "d.freeze=['*bias']"),
    "flow": ("flow-digits", *SMALL_FLOW),
    "few steps": ("fewstep-digits", *SMALL_FLOW, "g.init=TEACHER", "d.init.path=TEACHER"),
    "few steps, LoRA": ("fewstep-digits", *SMALL_FLOW, "g.init=TEACHER", "d.init.path=TEACHER", LORA),
    "DMD2": ("dmd2-digits", *DMD2),
    "DMD2, unequal": ("dmd2-digits", *DMD2, "players.fake_score.updates_per_step=3", "d.updates_per_step=1"),
}

STATEFUL = {"lazy R1, LeCam, k=2", "ADA", "StyleGAN2", "balancer"}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher") / "run"
    words = ("flow-digits", *SMALL_FLOW, *ALL, "model.steps=3", "train.kimg=0.016")
    assert main(["train", *words, "--out", str(folder)]) == 0
    assert main(["export", str(folder)]) == 0
    return str(folder / "export" / "generator.safetensors")


def played(folder, words, steps):
    """A trainer that has resumed if it could, played so many steps and saved."""
    trainer = build.trainer(read_recipe(words[0], [*ALL, *words[1:]]), folder, print, stop=lambda: False)
    trainer.resume()
    for _ in trainer.run(steps):
        pass
    trainer.save()
    return trainer


SLOW = {"few steps", "DMD2"}  # their likes are not


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in GAMES])
def test_a_resumed_game_ends_with_every_bit(tmp_path, request, name):
    words = GAMES[name]
    if "TEACHER" in "".join(words):
        words = [word.replace("TEACHER", request.getfixturevalue("teacher")) for word in words]
    straight = played(tmp_path / "straight", words, 2 * STEPS)
    start = played(tmp_path / "resumed", words, STEPS)
    resumed = played(tmp_path / "resumed", words, STEPS)
    assert resumed.clock == straight.clock and resumed.clock.step == 2 * start.clock.step
    moved = set()
    for side, player in straight.players.items():
        (pieces, counters), (others, other_counters) = (state_of(one) for one in (player, resumed.players[side]))
        halfway = state_of(start.players[side])[0].tensors
        assert counters == other_counters
        assert pieces.tensors.keys() == others.tensors.keys()
        assert [key for key, value in pieces.tensors.items() if not torch.equal(value, others.tensors[key])] == []
        moved |= {
            key.partition("/")[0] for key, value in pieces.tensors.items() if not torch.equal(value, halfway[key])
        }
    assert moved >= {"net", "ema", "optimizer", "player"} | ({"state"} if name in STATEFUL else set())
