"""Law: who reads the samples of a `Dataset`, and how often a run resumes, is invisible; bit for bit."""

import multiprocessing

import pytest

from tests.distributed import cases_program_data as cases
from tests.tiny_run import newest

CASES = "tests.distributed.cases_program_data"
BY_PROCESSES = {"loading.threads": 2}
BY_ITSELF = {"loading.prefetch": 0}


def files(folder):
    return {path.name: path.read_bytes() for path in newest(folder).glob("*.safetensors")}


def test_twenty_steps_equal_eight_and_a_resume_with_processes_and_without(tmp_path):
    cases.trainer(tmp_path / "whole", **BY_ITSELF).run()
    for name, settings in (("process", BY_ITSELF), ("processes", BY_PROCESSES), ("one", {"loading.prefetch": 1})):
        for steps in (8, cases.STEPS):
            cases.trainer(tmp_path / name, steps, **settings).run()
        assert files(tmp_path / name) == files(tmp_path / "whole")
        assert not multiprocessing.active_children()


@pytest.mark.distributed
def test_two_ranks_equal_with_processes_and_without(tmp_path, two_ranks):
    for name, settings, kind in (
        ("process", BY_ITSELF, "Loader"),
        ("processes", BY_PROCESSES, "ProcessBatches"),
    ):
        for steps in (8, cases.STEPS):
            found = two_ranks.run(f"{CASES}:train", folder=str(tmp_path / name), steps=steps, **settings)
            assert found == [kind] * 2
    assert files(tmp_path / "process") == files(tmp_path / "processes") != {}
