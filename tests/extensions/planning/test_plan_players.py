"""The plan of games with extra players: against real networks, torch's counter, and sums of what updates cost."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from paragan import build
from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.planning.plan_run import PlanRequest, plan_run
from paragan.extensions.planning.profile import read_profile
from paragan.extensions.planning.profile_run import measure_profile, updates_fingerprint
from paragan.extensions.planning.simulation import GameCosts, SimulatedTime
from paragan.parallel import ddp, zero3
from tests.marks import slow
from tests.simulated_workers import Link, cluster, constant, player_profile, profile
from tests.unit.build.test_players import MODEL, TERM

DENOISER = Side("denoiser")
BATCH = 16
VALUES = TERM.replace("x = context.outputs.images", "x = context.outputs.images\n        (x > 0).nonzero()")


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Words of a small game with the player `denoiser`, which is updated twice in a step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(MODEL)
    (tmp_path / "term.py").write_text(TERM)
    sizes = ["data.size=8", f"train.batch={BATCH}", "train.kimg=0.64", "train.threads=1", "g.ema=null", "loss=hinge"]
    files = ["model=nets.py", "penalties=term.py", "players.denoiser.updates_per_step=2"]
    return [*sizes, *files, "scheme=synchronous", "g.precision=fp32", "d.precision=fp32"]


def planned(words, **arguments):
    return plan_run(PlanRequest(config=read_recipe("digits", words), recipe="digits", **arguments))


@pytest.mark.parametrize("scheme", ["synchronous", "dmd2"])
def test_plan_has_the_size_of_each_player(words, scheme):
    plan = planned([*words, f"scheme={scheme}"])
    config = read_recipe("digits", words)
    game = build.gan(config, build.open_data(config), torch.device("cpu"))
    nets = {side: slot.net for side, slot in game.slots.items()}
    denoiser = plan.model.players["denoiser"]
    assert (list(plan.model.players), denoiser.updates) == (["g", "d", "denoiser"], 2)
    assert denoiser.parameters == sum(weight.numel() for weight in nets[DENOISER].parameters()) == 10
    state = [*(t for net in nets.values() for t in (*net.parameters(), *net.buffers()))]
    assert plan.memory.terms["weights"] == sum(tensor.numel() * tensor.element_size() for tensor in state)
    assert denoiser.saved_by_turn > 0
    assert plan.data.steps == 20  # 640 images, two batches of 16 in a step


def test_gmacs_of_a_further_player_are_those_of_a_counter_on_real_tensors(words):
    config = read_recipe("digits", words)
    game = build.gan(config, build.open_data(config), torch.device("cpu"))
    real = Batch(
        Rows(step=0, first=0, count=BATCH, total=BATCH),
        {"image": torch.rand(BATCH, 1, 8, 8), "label": torch.arange(BATCH) % 10},
    )
    with FlopCounterMode(display=False) as counter:
        game.slots[DENOISER].compute_gradients(game.turn(DENOISER, real), against=game.g)
    expected = counter.get_total_flops() / 2
    assert planned(words).model.players["denoiser"].turn_gmacs * 1e9 == pytest.approx(expected, abs=0.5)
    assert expected > 0


def test_plan_prints_and_writes_further_players(words, capsys):
    assert main(["plan", "digits", *words, "--trust"]) == 0
    printed = capsys.readouterr().out
    assert "denoiser turn" in printed and "2 per step" in printed
    assert main(["plan", "digits", *words, "--trust", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"]["players"]["denoiser"]["forward_gmacs"] is None


@pytest.mark.slow
def test_plan_measures_and_profiles_each_player(words):
    plan = planned(words, is_measured=True, is_profiled=True)
    assert list(plan.measured.turn_s) == ["g", "d", "denoiser"]
    assert plan.measured.images_per_s == pytest.approx(2 * plan.measured.batch / plan.measured.step_s)
    assert list(plan.operators) == ["d", "g", "denoiser"]


TURNS = "scheme={name: asynchronous, staleness: 0, reuse: false, ranks: {g: 1, d: 1, denoiser: 2}}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["plan", "--workers", "4", "--choose"], "the choice of settings (--choose, train --plan)"),
        (["train", "--plan", "auto", "--out", "run"], "the choice of settings (--choose, train --plan)"),
        (["plan", "--workers", "4", TURNS], "plan them with another scheme"),
    ],
)
def test_what_cannot_be_planned_is_one_line(words, capsys, command, expected):
    verb, *options = command
    assert main([verb, "digits", *words, *options, "--trust"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and expected in error


@pytest.mark.parametrize("term", [VALUES, VALUES.replace("(x > 0).nonzero()", "x[x > 0]")])
def test_a_term_that_needs_values_is_one_line(words, tmp_path, capsys, term):
    (tmp_path / "term.py").write_text(term)
    assert main(["plan", "digits", *words, "--trust"]) == 2
    assert "has tensors without values" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("recipe", "shape"), [slow("codec", (1, 4096)), slow("vocoder", (1, 4096))])
def test_plan_of_audio_has_the_shape_of_what_g_generates(recipe, shape):
    plan = plan_run(PlanRequest(config=read_recipe(recipe, ["train.batch=2"]), recipe=recipe))
    assert plan.data.shape == shape
    assert plan.model.players["d"].turn_gmacs > 0


def test_shape_of_a_model_that_reads_other_tensors_is_one_line(capsys):
    assert main(["plan", "superres", "data.path=x", "--shape", "3x64x64", "--classes", "0"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "takes 'low'; leave --shape" in error


@pytest.mark.parametrize("fraction", [0.01, 0.5, 1])
def test_a_penalty_on_some_samples_is_planned(fraction):
    term = f"penalties=[{{name: approximate_r1, fraction: {fraction}}}]"
    less, more = (planned(["data.size=8", "model.width=4", word]) for word in ("penalties=[]", term))
    assert more.model.players["d"].turn_gmacs > less.model.players["d"].turn_gmacs


# forecasts


@pytest.fixture
def measured(words):
    with torch.random.fork_rng():
        threads = torch.get_num_threads()
        config = read_recipe("digits", words)
        found = measure_profile(config, "digits", build.open_data(config), lambda batch: 0, [8, 16])
        torch.set_num_threads(threads)
    return config, found


@pytest.mark.slow
def test_profile_of_further_players_is_measured_and_read_back(measured, tmp_path):
    config, found = measured
    denoiser = found.further["denoiser"]
    assert (denoiser.parameters, denoiser.weight_bytes, denoiser.updates, denoiser.calls) == (10, 40, 2, ())
    assert min(denoiser.update_s.values) > 0
    assert (found.d_updates, found.batches_per_step) == (1, 2)
    found.write(tmp_path / "profile.json")
    assert read_profile(tmp_path / "profile.json") == found
    other = config.with_player("denoiser", replace(config.players["denoiser"], updates_per_step=3))
    assert updates_fingerprint(other) != updates_fingerprint(config)


def costs(scheme, caller=None, strategy=None, **seconds):
    """G, D and a player of 1 MB with an update of 0.05 s, twice in a step. caller: `g` or `d`, which calls it."""
    found = replace(
        profile(**seconds), further={"denoiser": replace(player_profile(250_000, constant(0.05)), updates=2)}
    )
    if caller is not None:
        found = replace(found, **{caller: replace(getattr(found, caller), calls=("denoiser",))})
    per_step = found.d_updates * 0.02 + 0.1 + found.d_updates * 0.08 + 2 * 0.05
    found = replace(found, step_s=constant(per_step), alone_step_s=constant(per_step))
    sides = found.players
    exchanges = dict.fromkeys(sides, (strategy or ddp.Strategy()).exchanges)
    return GameCosts(
        profile=found, scheme=scheme, exchanges=exchanges, batch=64, spans_norms=dict.fromkeys(sides, True)
    )


def step_s(game, workers, link=None):
    time = SimulatedTime(game=game, cluster=cluster(workers) if link is None else cluster(workers, link))
    return float(np.diff(time.run(60))[20:].mean()), time.bytes.get("parameters", 0) / 60


def scheme_of(name):
    return build.scheme(read_recipe("digits", [f"scheme={name}"]))


def test_step_of_one_worker_is_the_sum_of_the_updates_of_all_players():
    game = costs(scheme_of("synchronous"), generate_s=0.02, load_s=0.01)
    assert step_s(game, 1)[0] == pytest.approx(0.1 + (0.08 + 0.02) + 2 * (0.05 + 0.01))
    alone_s = 0.02 + 0.1 + 0.08 + 2 * 0.05
    assert game.profile.alone_images_per_s(64) == pytest.approx(2 * 64 / alone_s)


def test_step_of_dmd2_generates_once_for_each_batch():
    game = costs(scheme_of("dmd2"), generate_s=0.02, load_s=0.01)
    updates = 0.1 + 0.08 + 2 * (0.05 - 0.02)  # the player's own update generates images
    assert step_s(game, 1)[0] == pytest.approx(updates + 2 * (0.02 + 0.01))


def test_gradients_of_further_players_are_reduced_too():
    several, sent = step_s(costs(scheme_of("synchronous")), 4, Link(0.0, 1e8))
    assert several > step_s(costs(scheme_of("synchronous")), 1)[0]
    assert sent == pytest.approx(2 * 3 * (4_000_000 + 2_000_000 + 2 * 1_000_000))


@pytest.mark.parametrize("caller", ["g", "d"])
def test_weights_of_a_player_that_another_calls_are_gathered(caller):
    scheme = scheme_of("synchronous")
    _, alone = step_s(costs(scheme, None, zero3.Strategy()), 4, Link(0.0, 1e8))
    _, called = step_s(costs(scheme, caller, zero3.Strategy()), 4, Link(0.0, 1e8))
    gathered = zero3.Strategy().exchanges(1_000_000, is_opponent=True)
    assert called - alone == pytest.approx(sum(3 * exchange.num_bytes for exchange in gathered), rel=1e-6)
