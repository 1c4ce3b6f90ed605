"""The plan of a run: sizes, operations and memory, against real networks, torch's counter and real processes."""

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter
from torch.utils.flop_counter import FlopCounterMode

import paragan as pg
from benchmarks import plan_memory
from paragan import build
from paragan.cli.main import main
from paragan.cli.plan import format_operators, format_part
from paragan.config import read_recipe
from paragan.core.dist import World
from paragan.core.types import Batch, Rows, Side
from paragan.extensions.planning.plan import OperatorTime, Plan
from paragan.extensions.planning.plan_run import PlanRequest, _open_data, _plan_data, plan_run, simulated_game
from paragan.extensions.planning.simulated_step import find_largest_batch
from paragan.layers import warp
from paragan.runs import layout
from paragan.runs.shape_only_data import condition_channels, noise_batches, shape_only_data
from tests.marks import slow
from tests.unit.hardware import test_memory_layout as convolutional

CPU = torch.device("cpu")
SHAPE, CLASSES, BATCH = (3, 32, 32), 10, 4
SMALL = {
    "mlp": "model={name: mlp, g_widths: [24, 32], d_widths: [32, 24]}",
    "dcgan": "model={name: dcgan, width: 8}",
    "sngan": "model={name: sngan, width: 8}",
    "sagan": "model={name: sagan, width: 16}",
    "biggan": "model={name: biggan, width: 8, shared: 8}",
    "biggan_deep": "model={name: biggan_deep, width: 8, shared: 8}",
    "stylegan2": "model={name: stylegan2, width: 8, base: 64, latent: 8, style: 8}",
    "r3gan": "model={name: r3gan, width: 16, groups: 4, latent: 8, embed: 5}",
}
WORDS = ("penalties=[]", "loss=hinge", "scheme=synchronous", f"train.batch={BATCH}", "train.threads=1")


@cache  # a plan is only read
def planned(*words, **arguments):
    config = read_recipe("digits", [*WORDS, *words])
    return plan_run(PlanRequest(config=config, recipe="digits", shape=SHAPE, classes=CLASSES, **arguments))


def turn_macs(*words):
    """Multiply-accumulate operations of both turns by the plan."""
    config = read_recipe("digits", [*WORDS, *words])
    players = simulated_game(config, shape_only_data(SHAPE, CLASSES, None), CPU).players(BATCH)
    return {Side(name): player.turn_gmacs * 1e9 for name, player in players.items()}


def real_game(*words):
    config = read_recipe("digits", [*WORDS, *words])
    return build.gan(config, shape_only_data(SHAPE, CLASSES, None), CPU)


def real_batch():
    tensors = {"image": torch.rand(BATCH, *SHAPE), "label": torch.arange(BATCH)}
    return Batch(Rows(step=0, first=0, count=BATCH, total=BATCH), tensors)


QUICK = ("mlp", "dcgan")


@pytest.mark.parametrize("model", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in SMALL])
def test_gmacs_are_those_of_a_counter_on_real_tensors(model):
    found = turn_macs(SMALL[model])
    game = real_game(SMALL[model])
    real = real_batch()
    turns = {
        Side.D: lambda: game.d.compute_gradients(game.d_turn(real), against=game.g),
        Side.G: lambda: game.g.compute_gradients(game.g_turn(real), against=game.d),
    }
    for side, run in turns.items():
        with FlopCounterMode(display=False) as counter:
            run()
        assert found[side] == pytest.approx(counter.get_total_flops() / 2, rel=1e-12) and found[side] > 0


def test_a_penalty_with_an_interval_counts_by_its_share():
    without = turn_macs(SMALL["dcgan"])[Side.D]
    always = turn_macs(SMALL["dcgan"], "penalties=[{name: r1, interval: 1}]")[Side.D]
    found = turn_macs(SMALL["dcgan"], "penalties=[{name: r1, interval: 4}]")[Side.D]
    assert always > without
    assert found == pytest.approx(without + (always - without) / 4, rel=1e-12)


FLOW = ("model={name: flow_unet, width: 12, multiples: [1], steps: 50}", "penalties=[flow_matching]")


def test_turn_without_an_adversarial_loss_is_that_of_its_penalties():
    """A flow's turn calls its network once, however many steps its solver takes, and D never trains."""
    words = (*FLOW, "adversarial={weight: 0, d_start_kimg: 1e9}")
    found = turn_macs(*words)
    game = real_game(*words)
    with FlopCounterMode(display=False) as counter:
        game.g.compute_gradients(game.g_turn(real_batch()), against=game.d)
    assert found == {Side.G: pytest.approx(counter.get_total_flops() / 2, rel=1e-12), Side.D: 0}
    forward = planned(*words).model.players["g"].forward_gmacs * 1e9 * BATCH
    assert 0 < found[Side.G] < forward / 10


def test_losses_that_begin_within_the_training_are_planned_from_the_start():
    plain = turn_macs(SMALL["mlp"])
    assert turn_macs(SMALL["mlp"], "train.kimg=4", "adversarial={start_kimg: 3, d_start_kimg: 3}") == plain
    assert turn_macs(SMALL["mlp"], "train.kimg=4", "adversarial={d_start_kimg: 4}") == plain | {Side.D: 0}


@pytest.mark.parametrize("model", ["dcgan", pytest.param("biggan", marks=pytest.mark.slow)])
def test_parameters_are_those_of_the_real_networks(model):
    found = planned(SMALL[model]).model
    game = real_game(SMALL[model])
    for network, player in ((found.players["g"], game.g), (found.players["d"], game.d)):
        assert network.parameters == sum(p.numel() for p in player.net.parameters() if p.requires_grad)
        assert network.buffers == sum(b.numel() for b in player.net.buffers())


@pytest.mark.parametrize(("optimizer", "copies"), [("SGD", 0), ("RMSprop", 1), ("Adam", 2), ("adabelief", 2)])
def test_optimizer_memory_is_what_the_optimizer_allocates(optimizer, copies):
    words = [f"{side}.optimizer={{name: {optimizer}, lr: 1e-3}}" for side in "gd"]
    plan = planned(SMALL["mlp"], *words)
    weights = 4 * sum(player.parameters for player in plan.model.players.values())
    found = plan.memory.terms["optimizer"]
    assert copies * weights <= found <= copies * weights + 1000  # counters of steps


def test_terms_sum_to_the_peak_and_ema_has_the_size_of_the_generator():
    plan = planned(SMALL["dcgan"])
    assert sum(plan.memory.terms.values()) == plan.memory.peak_bytes
    state = plan.model.players["g"]
    assert plan.memory.terms["ema"] == 4 * (state.parameters + state.buffers)
    assert planned(SMALL["mlp"], "g.ema=null").memory.terms["ema"] == 0
    assert all(player.saved_by_turn > 0 for player in plan.model.players.values())


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads the resident set from /proc")
@pytest.mark.parametrize(("model", "batch"), [("mlp", 256), ("dcgan", 32)])
def test_predicted_memory_is_within_30_percent_of_the_measured_peak(model, batch):
    row = plan_memory.compare(model, batch)
    assert abs(row["error_percent"]) <= (30 if row["device"] == "cpu" else 15), row


@pytest.mark.slow
def test_largest_batch_fits_and_the_next_does_not():
    largest = planned(SMALL["mlp"], "d.micro_batches=2", memory_gb=0.1).memory.largest_batch
    assert largest % 2 == 0
    fits, next_one = (planned(SMALL["mlp"], f"train.batch={b}", "d.micro_batches=2") for b in (largest, largest + 2))
    assert fits.memory.peak_bytes <= 0.1e9 < next_one.memory.peak_bytes


@pytest.mark.parametrize("limit", [0, 99, 100, 101, 5_000, 123_456])
def test_largest_batch_is_that_of_a_search_of_all(limit):
    calls = []

    def peak(batch):
        calls.append(batch)
        return 90 + 10 * batch + batch**2 // 50

    brute = max((b for b in range(0, 9_999, 3) if b == 0 or 90 + 10 * b + b**2 // 50 <= limit), default=0)
    assert find_largest_batch(peak, limit, 64, 3) == brute
    assert len(calls) < 20


def test_a_plan_leaves_no_fake_tensor_behind():
    warp.clear_cached_matrices()
    planned(SMALL["dcgan"], "augment=ada")
    assert type(warp.cosine_basis(8, torch.float32, CPU)) is torch.Tensor
    game = real_game(SMALL["dcgan"], "augment=ada")
    build.scheme(read_recipe("digits", WORDS)).step(game, iter([real_batch()] * 2))
    assert all(weight.isfinite().all() for weight in game.d.net.parameters())


@pytest.mark.parametrize("arguments", [{}, slow({"memory_gb": 0.05, "is_measured": True})])
def test_document_is_valid_by_the_schema(arguments):
    """`docs/reference/plan.schema.json` is that of the class."""
    plan = planned(SMALL["mlp"], **arguments)
    assert TypeAdapter(Plan).validate_json(json.dumps(plan.to_dict()), strict=True) == plan


def test_measured_times_are_of_the_requested_batch():
    config = read_recipe("digits", [*WORDS, SMALL["mlp"], "train.kimg=36"])
    measured = plan_run(PlanRequest(config=config, recipe="digits", is_measured=True)).measured
    assert measured.batch == BATCH
    assert measured.images_per_s == pytest.approx(BATCH / measured.step_s)
    assert measured.hours == pytest.approx(10 / measured.images_per_s)
    assert min(*measured.turn_s.values(), measured.load_s) > 0


def test_command_prints_one_screen_and_the_document(capsys):
    words = ["plan", "digits", "--shape", "1x16x16", "--classes", "10"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 120
    assert main([*words, "--json", *WORDS, SMALL["mlp"]]) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"model", "memory", "parallel", "data", "forecast"} <= set(document) and document["version"] == 7
    assert document["parallel"] is None and document["forecast"] is None and document["measured"] is None
    plan = json.loads(json.dumps(pg.plan("digits", [*WORDS, SMALL["mlp"]]).to_dict()))
    assert document == plan | {"data": document["data"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cellular-mnist", "--shape", "1x28x28"], "grid needs .* paragan plan"),
        (["digits", "scheme=parameter_server", "--workers", "4"], "--workers .* forecast .* scheme parameter_server"),
        (["sngan-cifar10"], "pass --shape CxHxW and --classes N"),
        (["digits", "--memory", "0"], "--memory"),
        (["digit"], "did you mean 'digits'"),
        (["digits", "--shape", "1x16x16"], "needs labels; .* --classes N"),
        (["translate", "--shape", "3x32x32"], "generates 'both'; leave --shape"),
        (["vocoder", "--shape", "3x32x32", "--measure"], "generates 'audio'; leave --shape"),
        (["codec", "--shape", "1x16x16", "--classes", "3"], "generates 'audio'; leave --shape"),
        (["superres", "--shape", "3x64x64"], "real_esrgan takes 'low'; leave --shape"),
        (["translate"], "pass data.path=DIR$"),  # no shape can replace the data
        (["superres"], "pass data.path=DIR$"),
        (["digits", "--workers", "1,2", "g.strategy=pipeline"], "--workers .* forecast .* strategy pipeline"),
    ],
)
def test_command_refuses_in_one_line(words, message, capsys):
    assert main(["plan", *words]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error) and "Traceback" not in error


@pytest.mark.parametrize("data", ["synthetic", "low_resolution", "unpaired"])
def test_noise_has_every_tensor_of_the_data(data, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    path = [] if data == "synthetic" else [f"data.path={tmp_path}", "data.held_out=0.25"]
    config = read_recipe("digits", [f"data={{name: {data}, size: 16}}", *path])
    opened = build.open_data(config)
    batches = noise_batches(config, opened, CPU, batch=3)
    for step in range(2):
        batch = next(batches)
        shapes = {name: (3, *spec.shape) for name, spec in opened.train.tensors.items()}
        assert {name: tuple(tensor.shape) for name, tensor in batch.tensors.items()} == shapes
        assert (batch.rows.step, batch.rows.count, batch.rows.total) == (step, 3, 3)


def test_pairs_are_planned_from_their_shape():
    config = read_recipe("pix2pix-facades", ["model.width=4", "data.size=16", "train.batch=2", "train.threads=1"])
    plan = plan_run(PlanRequest(config=config, recipe="pix2pix-facades", shape=(3, 16, 16)))
    assert plan.data.batch_bytes == 2 * 2 * 3 * 16 * 16  # image and condition
    assert plan.model.players["g"].parameters == sum(
        p.numel() for p in build.gan(config, shape_only_data((3, 16, 16), 0, condition=3), CPU).g.net.parameters()
    )


def test_pairs_with_a_grey_condition_are_planned_with_one_channel_of_it():
    config = read_recipe("colourise", ["data.size=16", "train.batch=2"])
    data = _open_data(PlanRequest(config=config, recipe="colourise", shape=(3, 16, 16)))
    assert _plan_data(config, data).batch_bytes == 2 * (3 + 1) * 16 * 16
    assert [condition_channels(read_recipe(name), SHAPE) for name in ("pix2pix-facades", "digits")] == [3, None]


def test_concurrent_scheme_is_planned_as_synchronous_and_says_so():
    assert "size and memory are those of synchronous" in planned(SMALL["mlp"], "scheme=asynchronous").notes[0]


def test_plan_profiles_the_operators_of_both_turns():
    config = read_recipe("digits", convolutional.WORDS)
    plan = plan_run(PlanRequest(config=config, recipe="digits", is_measured=True, is_profiled=True))
    nets = layout.TrialRun(config, World(), None).networks()
    convs = {
        side.value: sum(isinstance(m, convolutional.CONVOLUTIONS) for m in net.modules()) for side, net in nets.items()
    }
    assert list(plan.operators) == ["d", "g"]
    # D's turn goes back through D for real and for fake images, G's through both networks
    for side, count in (("d", 2 * convs["d"]), ("g", convs["g"] + convs["d"])):
        seconds = [one.seconds for one in plan.operators[side]]
        assert seconds == sorted(seconds, reverse=True) and seconds[-1] > 0
        backward = next(one for one in plan.operators[side] if one.name == "aten::convolution_backward")
        assert backward.calls == count > 0
    text = format_part(plan.operators)
    for words in ("D turn  ", "G turn  ", "aten::convolution_backward", f"{len(plan.operators['g']) - 12} more"):
        assert words in text


def test_shares_of_an_operator_table_are_of_all_operators():
    lines = format_operators("g", [OperatorTime(f"aten::{number}", 2.0, 0.05) for number in range(20)]).splitlines()
    assert lines[0].split() == ["G", "turn", "calls", "time"] and len(lines) == 14
    assert lines[1].split() == ["aten::0", "2", "50", "ms", "5.0%"]
    assert lines[-1].split() == ["8", "more", "400", "ms", "40.0%"]
