"""Training computes what it computed when `hashes.json` was written, bit for bit, for every configuration."""

from __future__ import annotations

import pytest

from tests.golden.configurations import CONFIGURATIONS
from tests.golden.record import fingerprint, hashes_of, known

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected():
    processor = fingerprint()
    if not (found := known(processor)):
        pytest.skip(
            f"not run: no hashes for the processor and torch {processor}; check out the commit before your change and "
            "run `python -m tests.golden.record --write` there"
        )
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_training_ends_with_the_recorded_weights_averages_and_optimiser_state(name, expected, tmp_path):
    assert hashes_of(name, tmp_path) == expected[name]
