"""Law "ranks are the batch" for layers that draw: every model of the zoo, under every strategy, in float64."""

import pytest

from tests.contract.small_networks import MODELS
from tests.marks import slow

pytestmark = pytest.mark.distributed

CASES = "tests.distributed.cases_draws"
DRAWING = ("stylegan2", "pix2pix")
TOLERANCE = 1e-10


@pytest.mark.slow
def test_every_image_model_on_two_uneven_ranks_is_the_batch(two_ranks):
    for found in two_ranks.run(f"{CASES}:all_under_ddp", models=MODELS):
        assert not {model: number for model, number in found.items() if not number <= TOLERANCE}


@pytest.mark.parametrize("model", DRAWING)
@pytest.mark.parametrize(
    ("g", "d"),
    [slow("zero1", "ddp"), slow("zero2", "ddp"), ("zero3", "zero3"), ("pipeline", "ddp"), slow("pipeline", "pipeline")],
)
def test_drawing_networks_on_two_ranks_are_the_batch(two_ranks, model, g, d):
    arguments = {"model": model, "g": g, "d": d, "options": {"micro_batches": 1}, "uneven": True}
    assert max(two_ranks.run(f"{CASES}:difference", **arguments)) <= TOLERANCE


def test_drawing_generator_against_d_under_tensor_is_the_batch(two_ranks):
    """No layer of the drawing generators can be split; D of pix2pix has some."""
    options = {"outputs": ["blocks.1.conv"]}
    arguments = {"model": "pix2pix", "g": "ddp", "d": "tensor", "options": options, "uneven": True}
    assert max(two_ranks.run(f"{CASES}:difference", **arguments)) <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("model", DRAWING)
def test_drawing_networks_under_hsdp_are_the_batch(four_ranks, model):
    assert max(four_ranks.run(f"{CASES}:difference", model=model, g="hsdp", d="hsdp")) <= TOLERANCE


@pytest.mark.parametrize("model", DRAWING)
@pytest.mark.parametrize("scheme", [slow("synchronous"), "shared_fakes"])
def test_drawing_networks_in_micro_batches_on_ranks_are_the_batch(two_ranks, model, scheme):
    wanted = {"norm": "instance", "group": 1}
    arguments = {"model": model, "g": "ddp", "d": "zero2", "scheme": scheme, "parts": 2, "wanted": wanted}
    assert max(two_ranks.run(f"{CASES}:difference", **arguments)) <= TOLERANCE


@pytest.mark.parametrize("model", DRAWING)
@pytest.mark.parametrize(("micro_batches", "recompute"), [slow(2, False), (2, True)])
def test_drawing_blocks_in_a_pipeline_of_micro_batches_are_the_batch(two_ranks, model, micro_batches, recompute):
    wanted = {"norm": "instance", "group": 1}
    options = {"micro_batches": micro_batches}
    arguments = {"model": model, "g": "pipeline", "d": "ddp", "options": options, "wanted": wanted}
    assert max(two_ranks.run(f"{CASES}:difference", recompute=recompute, **arguments)) <= TOLERANCE
