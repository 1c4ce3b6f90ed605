"""p is the same on all ranks, and the same as on one."""

import math

import pytest

from tests.distributed.cases_ada import OPTIONS
from tests.unit.augment.test_ada_control import by_hand

CASES = "tests.distributed.cases_ada"

pytestmark = pytest.mark.distributed


def test_p_follows_the_signs_of_all_ranks(two_ranks):
    """Also where one rank's logits are no numbers, and where the mean is the target in any order of sums."""
    script = [[6.0, 12.0], [7.0, 1.0], [3.0, math.nan], [7.0, 0.0], [7.0, -1.0]]
    script += [[-7.0, -13.0], [0.0, 3.0], [7.0, 2.0], [-7.0, -12.0]]
    means = [sum(step) / 26 for step in script]
    expected = by_hand(means, 26, OPTIONS)[1:]
    found = two_ranks.run(f"{CASES}:scripted", script=script, images=26)  # 26 * (7 / 26) is not 7 in float32
    assert found[0] == found[1] == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) > 2
