"""Lines of progress: none for short work, then one every ten seconds with the time that is left."""

import pytest

from paragan.core import printable
from paragan.core.printable import ProgressLines


@pytest.fixture
def clock(monkeypatch):
    """A clock whose time tests set."""
    now = [100.0]
    monkeypatch.setattr(printable.time, "monotonic", lambda: now[0])
    return now


def test_short_work_prints_nothing(clock):
    said = []
    lines = ProgressLines(label="score", unit="images", total=1000, log=said.append, _began=100.0, _reported=100.0)
    for done in range(0, 1001, 100):
        clock[0] += 0.9
        lines(done)
    assert said == []


def test_long_work_prints_a_line_every_ten_seconds(clock):
    said = []
    lines = ProgressLines(label="score", unit="images", total=1000, log=said.append, _began=100.0, _reported=100.0)
    for done in range(0, 1001, 100):
        lines(done)
        clock[0] += 6
    assert said == [
        "score     200 of 1,000 images, about 48 s left",
        "score     400 of 1,000 images, about 36 s left",
        "score     600 of 1,000 images, about 24 s left",
        "score     800 of 1,000 images, about 12 s left",
    ]
