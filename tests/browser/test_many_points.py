"""Pages of 4,000 points against pages of 200: size, nodes and the work of the slider do not grow with the record."""

from __future__ import annotations

import shutil

import pytest

from paragan.report.comparison import read_comparison
from paragan.report.comparison_page import save_comparison
from paragan.report.page import Page
from tests.browser import made_run
from tests.browser.driver import NEEDED

pytestmark = NEEDED
FEW, MANY = 200, 4_000
MAX_BYTES = 2_000_000
MOVES = """
const slider = document.querySelector("#time"), last = Number(slider.max), seconds = [];
for (let round = 0; round < 7; round++) {
  const began = performance.now();
  for (let n = 0; n < 60; n++) {
    slider.value = n % (last + 1);
    slider.dispatchEvent(new Event("input", {bubbles: true}));
    document.body.getBoundingClientRect();
  }
  seconds.push((performance.now() - began) / 1000);
}
return Math.min(...seconds);
"""
NODES = "return document.querySelectorAll('*').length"
LOAD = "return performance.getEntriesByType('navigation')[0].domComplete / 1000"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Report and comparison of four runs, of few and of many points."""
    root = tmp_path_factory.mktemp("points")
    return {points: write(root / f"{points}", points) for points in (FEW, MANY)}


def write(root, points: int):
    first = made_run.make(root / "a", steps=points, scores=points, samples=20, size=(120, 120))
    runs = [first, *(root / name for name in "bcd")]
    for run in runs[1:]:
        shutil.copytree(first, run)
    save_comparison(read_comparison(runs), root / "compare.html")
    return {"report": Page(first).save(), "compare": root / "compare.html"}


@pytest.mark.parametrize("kind", ["report", "compare"])
@pytest.mark.slow
def test_page_of_many_points_is_as_small_and_as_fast_as_one_of_few(browser, pages, kind):
    nodes, moves, loads = {}, {}, {}
    for points in (FEW, MANY):
        browser.open(pages[points][kind].as_uri())
        loads[points] = browser.run(LOAD)
        nodes[points] = browser.run(NODES)
        moves[points] = browser.run(MOVES)
    size = pages[MANY][kind].stat().st_size
    print(f"{kind}: {size:,} bytes, nodes {nodes}, load {loads} s, 60 moves of the slider {moves} s")
    assert size < MAX_BYTES
    assert nodes[MANY] <= 1.2 * nodes[FEW]
    assert moves[MANY] <= 5 * moves[FEW]
