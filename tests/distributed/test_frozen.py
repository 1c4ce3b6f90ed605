"""Frozen networks of players on ranks: equal to one process, unchanged, and not sent where they are declared."""

import pytest
import torch
from safetensors.torch import save_file

CASE = "tests.distributed.cases_frozen:against_one_process"
STEPS = 3
HEADS = 32 * 16 + 16 + 32 + 1  # float64 weights that train, of both players
PIECES = 32 * 8 + 8 + 32 + 1  # of the first of two ranks: rows of each

pytestmark = pytest.mark.distributed


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "plain"])
@pytest.mark.parametrize(("name", "parts"), [("ddp", 1), ("zero1", 2), ("zero3", 1)])
def test_ranks_with_frozen_networks_equal_one_process(two_ranks, name, parts, declared):
    for found in two_ranks.run(CASE, name=name, declared=declared, parts=parts):
        assert found["difference"] <= 1e-12 and found["moved"] == 0.0
        assert found["trained"] > 1e-3
        assert (found["frozen tensors saved"] == 0) is declared
        if name == "ddp":
            assert found["sent"] == STEPS * 8 * HEADS  # gradients
        if name == "zero1":
            assert found["sent"] == STEPS * 8 * (HEADS + PIECES)  # gradients and weights


@pytest.mark.parametrize("name", ["ddp", "zero3"])
def test_a_player_starts_from_a_file_of_which_each_rank_reads_its_boxes(tmp_path, two_ranks, name):
    weights = {"head.weight": torch.randn(1, 32).double(), "head.bias": torch.randn(1).double()}
    save_file(weights, tmp_path / "d.safetensors")
    case = "tests.distributed.cases_frozen:started_from_file"
    shares = []
    for of_network, of_average, share in two_ranks.run(case, name=name, path=str(tmp_path / "d.safetensors")):
        assert of_network == of_average == 0.0
        shares.append(share)
    assert sum(shares) == (2.0 if name == "ddp" else 1.0)


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "plain"])
def test_averaging_over_three_ranks_leaves_frozen_networks_as_they_were(three_ranks, declared):
    for found in three_ranks.run(CASE, name="local_sgd", declared=declared):
        assert found["moved"] == 0.0 and found["trained"] > 1e-3


def test_local_sgd_refuses_a_weight_that_is_unfrozen_later(two_ranks):
    for said in two_ranks.run("tests.distributed.cases_frozen:unfrozen_later"):
        assert said.startswith("local_sgd: a weight was frozen when the player was built") and "\n" not in said
