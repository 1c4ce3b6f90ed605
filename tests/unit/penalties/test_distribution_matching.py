"""DMD2's two terms against the plainest loops, and its recipe."""

import json

import pytest
import torch
from safetensors.torch import save_file

from paragan.cli.main import main
from paragan.core import rng
from paragan.core.errors import ConfigError
from paragan.core.protocols import Turn
from paragan.core.types import LossTerms, Side
from paragan.game.network import CalledNetwork
from paragan.parallel import none
from paragan.penalties import distribution_matching, fake_flow_matching
from tests.examples.stopped_runs import assert_equal_runs
from tests.unit.recipes.test_flow import BATCH, ROWS, SEED, SHAPE, SMALL, inputs, network

FAKE_SCORE = Side("fake_score")


def loss_and_gradients(side, penalty, nets):
    called = {kind: CalledNetwork(module=net) for kind, net in nets.items()}
    turn = Turn(
        side=side,
        chain=(Side.G,),
        feed=inputs(),
        objective=lambda outputs, feed: LossTerms({}),
        penalties=(penalty,),
        needs_real=False,
    )
    terms = none.Strategy().forward_backward(turn, called, 1)
    return terms.loss_B[penalty.name], [weight.grad for weight in nets[side].parameters()]


def noised(x, name):
    drawn = rng.uniform(SEED, f"{name}/time", ROWS, (1, 1, 1)).double()
    return drawn, rng.normal(SEED, f"{name}/noise", ROWS, SHAPE).double()


def test_fake_score_matches_the_flow_of_the_images_of_g():
    g, fake_score = network(), network(seed=SEED + 1)
    penalty = fake_flow_matching.Penalty(fake_flow_matching.Options(weight=3.0))
    loss_B, found = loss_and_gradients(FAKE_SCORE, penalty, {Side.G: g.requires_grad_(False), FAKE_SCORE: fake_score})
    feed = inputs()
    x = g(feed.latent, feed.label)
    t, n = noised(x, "fake_flow_matching")
    error = fake_score(((1 - t) * x + t * n).flatten(1), feed.label, t.flatten()) - (n - x)
    expected_B = 3 * error.square().flatten(1).mean(1)
    expected = torch.autograd.grad(expected_B.sum() / BATCH, list(fake_score.parameters()))
    torch.testing.assert_close(loss_B, expected_B.detach(), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found, list(expected), rtol=1e-10, atol=1e-12)


def test_gradient_of_g_is_the_scaled_difference_of_both_predictions(tmp_path):
    teacher, g, fake_score = network(seed=SEED + 2).float().double(), network(), network(seed=SEED + 1)
    path = tmp_path / "generator.safetensors"  # which has float32, as every export
    save_file({name: value.float().contiguous() for name, value in teacher.state_dict().items()}, path)
    penalty = distribution_matching.Penalty(distribution_matching.Options(weight=2.0, teacher=str(path)))
    nets = {Side.G: g, FAKE_SCORE: fake_score.requires_grad_(False)}
    loss_B, found = loss_and_gradients(Side.G, penalty, nets)
    feed = inputs()
    x = g(feed.latent, feed.label)
    drawn, n = noised(x, "distribution_matching")
    t = 0.02 + 0.96 * drawn
    x_t = ((1 - t) * x + t * n).detach()
    real, fake = (x_t - t * net(x_t.flatten(1), feed.label, t.flatten()) for net in (teacher, fake_score))
    gradient = (fake - real) / (x - real).abs().mean((1, 2, 3), keepdim=True)
    loss = (2 * gradient.detach() * x).sum() / (BATCH * x[0].numel())  # equation 7: the gradient at x is known
    expected = torch.autograd.grad(loss, list(g.parameters()))
    torch.testing.assert_close(found, list(expected), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(loss_B, gradient.detach().square().flatten(1).mean(1), rtol=1e-10, atol=1e-12)


def test_teacher_is_required():
    penalty = distribution_matching.Penalty(distribution_matching.Options())
    with pytest.raises(ConfigError, match=r"^penalty distribution_matching: teacher is required; pass .*$"):
        loss_and_gradients(Side.G, penalty, {Side.G: network(), FAKE_SCORE: network()})


def test_recipe_trains_three_players_from_one_file_and_resumes_bit_for_bit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "flow-digits", *SMALL, "model.steps=3", "train.kimg=0.016", "--out", "runs/flow-digits"]) == 0
    assert main(["export", "runs/flow-digits"]) == 0
    for folder, kimg in (("runs/three", "0.032"), ("runs/three", "0.064"), ("runs/uninterrupted", "0.064")):
        assert main(["train", "dmd2-digits", *SMALL, f"train.kimg={kimg}", "--out", folder]) == 0
    record = [json.loads(line) for line in (tmp_path / "runs/three/metrics.jsonl").read_text().splitlines()]
    names = {"g/loss/distribution_matching", "fake_score/loss/fake_flow_matching", "d/loss/approximate_r1"}
    assert [line["step"] for line in record if names <= line.keys()] == [1, 2, 3, 4]
    assert_equal_runs(tmp_path / "runs/uninterrupted", tmp_path / "runs/three")
