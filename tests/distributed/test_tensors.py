"""Named conditions with a mask and a size: micro-batches, ranks, strategies and a resume train the same."""

import pytest
import torch

from paragan.checkpoint.writer import CheckpointWriter
from tests.distributed import cases_tensors as cases

CASES = "tests.distributed.cases_tensors"


def weights_of(folder):
    """Weights and averages of both players."""
    found = CheckpointWriter(folder=folder / "checkpoints").newest()
    every = {f"{group}/{name}": value for group, held in found.groups.items() for name, value in dict(held).items()}
    return {name: value for name, value in every.items() if "/net/" in name or "/ema/" in name}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a run in one process, on whole batches."""
    return weights_of(cases.trainer(tmp_path_factory.mktemp("whole")).run().folder)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", ["synchronous", "shared_fakes"])
def test_four_micro_batches_equal_the_whole_batch(tmp_path, scheme):
    runs = [cases.trainer(tmp_path / str(parts), parts=parts, scheme=scheme).run() for parts in (1, 4)]
    assert_close(*(weights_of(run.folder) for run in runs))


def test_garbage_in_padding_changes_nothing(tmp_path, whole):
    run = cases.trainer(tmp_path, garbage=1e6).run()
    assert all(torch.equal(value, whole[name]) for name, value in weights_of(run.folder).items())


@pytest.mark.distributed
@pytest.mark.parametrize("pair", ["ddp", "zero3"])
def test_two_ranks_with_a_resume_equal_one_process(tmp_path, two_ranks, whole, pair):
    for steps, trained in ((1, 1), (cases.STEPS, cases.STEPS - 1)):
        assert two_ranks.run(f"{CASES}:train", folder=str(tmp_path), pair=pair, parts=2, steps=steps) == [trained] * 2
    assert_close(weights_of(tmp_path), whole)
