"""Steps of BigGAN and StyleGAN2 with recomputed blocks are those without, in float64, 1e-10.

R1 and path length differentiate twice through recomputed blocks; StyleGAN2 draws noise and styles in them.
"""

from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch

from paragan.core.types import Side
from paragan.parallel import MemoryOptions, none
from paragan.penalties import r1
from paragan.schemes import synchronous
from tests.laws import zoo_games
from tests.laws.small_gan import play

STEPS = 2


def player(model, side, recompute=True):
    return zoo_games.player(model, side, none.Strategy(None, MemoryOptions(recompute=recompute)))


def trained(model, steps, recompute):
    """Weights after some steps, and the number of forward passes of each player's layers."""
    g, d = (player(model, side, recompute) for side in Side)
    calls = {Side.G: 0, Side.D: 0}

    def count_call(side, *_):
        calls[side] += 1

    for one in (g, d):
        for module in one.net.blocks.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(partial(count_call, one.side))
    gan = zoo_games.game(g, d, model, styled=model == "stylegan2")
    play(replace(gan, d_penalties=(r1.Penalty(r1.Options(weight=1.0)),)), synchronous, zoo_games.batches(model), steps)
    return zoo_games.weights(gan), calls


@pytest.mark.parametrize("model", ["biggan", "stylegan2"])
def test_training_with_recomputed_blocks_equals_training_without(model):
    (plain, calls), (recomputed, more_calls), (start, _) = (
        trained(model, *of) for of in ((STEPS, False), (STEPS, True), (0, False))
    )
    assert all(more_calls[side] > calls[side] for side in Side)
    for name, value in plain.items():
        torch.testing.assert_close(recomputed[name], value, rtol=0, atol=1e-10, msg=name)
    assert max(float((plain[name] - start[name]).abs().max()) for name in plain) > 1e-3


def test_copy_of_a_recomputed_network_has_its_own_weights():
    """As an opponent's snapshot: its output changes with its weights, and no gradient reaches the original."""
    net = player("biggan", Side.D).net
    copied = deepcopy(net).requires_grad_(False)
    with torch.no_grad():
        for weight in copied.parameters():
            weight.mul_(1.1)
    plain = player("biggan", Side.D, recompute=False).net
    plain.load_state_dict(copied.state_dict())
    x = next(zoo_games.batches("biggan")).image.requires_grad_()
    found, expected = (torch.autograd.grad(one(x).logits_B.sum(), x)[0] for one in (copied, plain))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    copied(x).logits_B.sum().backward()
    assert all(weight.grad is None for weight in net.parameters())
