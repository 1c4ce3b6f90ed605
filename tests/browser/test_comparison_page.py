"""A page of four runs in a real browser: one slider, two axes, marks on scores that do not compare, no request."""

import re

import pytest

from paragan.report.comparison import read_comparison
from paragan.report.comparison_page import render_comparison_page
from tests.browser import made_runs
from tests.browser.conftest import opened
from tests.browser.driver import NEEDED

pytestmark = NEEDED


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    page = render_comparison_page(read_comparison(made_runs.make(root)))
    (root / "compare.html").write_text(page, encoding="utf-8")
    return root / "compare.html"


@pytest.fixture
def page(browser, file):
    """The page, opened from a file: it requests nothing else, and the console stays empty."""
    yield from opened(browser, file)


MOVE = """
const slider = document.querySelector("#time");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input", {bubbles: true}));
const places = [...document.querySelectorAll("[data-place]")].map((place) => place.textContent);
return [places, [...document.querySelectorAll("[data-track]")].map((image) => image.src)];
"""


def test_one_slider_moves_the_samples_of_all_runs_to_the_same_kimg(page):
    stops = int(page.run("return document.querySelector('#time').max"))
    seen = [page.run(MOVE, stop) for stop in range(stops + 1)]
    kimg = [[float(re.search(r"([\d.]+) kimg", place).group(1)) for place in places] for places, _ in seen]
    assert [len(row) for row in kimg] == [4] * (stops + 1)
    assert kimg[0] == [0, 0, 0, 0] and kimg[-1] == [128, 153.6, 179.2, 204.8]
    assert all(list(column) == sorted(column) for column in zip(*kimg, strict=True))
    assert [len({sources[n] for _, sources in seen}) for n in range(4)] == list(made_runs.SAMPLES)


AXIS = """
const shown = (query) => document.querySelector(query).getBoundingClientRect().width > 0;
return [shown("[data-chart='metric-0'] .by-kimg polyline"), shown("[data-chart='metric-0'] .by-seconds polyline")];
"""
FRAMES = (
    "return [...document.querySelectorAll('[data-chart=game-0] .frame')].map((line) => Number(line.getAttribute('x1')))"
)


def test_the_axis_switches_between_images_and_time(page):
    assert page.run(AXIS) == [True, False]
    over_images = page.run(FRAMES)
    page.click("#over-seconds")
    assert page.run(AXIS) == [False, True]
    over_time = page.run(FRAMES)
    assert over_images != over_time and over_time == sorted(over_time)  # every run is slower than the one before
    right = page.run("return Number(document.querySelector('[data-chart=game-0] svg').dataset.right)")
    assert over_images[-1] == over_time[-1] == right and over_time[0] < right / 3  # the last run ends last
    page.keys("[data-chart='game-0'] svg", "end")
    assert re.search(r"A .*D .*(s|min)$", page.text("[data-chart='game-0'] .readout"))
    page.keys("[data-chart='game-0'] svg", "escape")
    page.click("#over-kimg")
    assert page.run(FRAMES) == over_images


def test_the_axis_switches_without_a_script(browser, file):
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(file.as_uri())
        browser.click("#over-seconds")
        assert browser.run(AXIS) == [False, True]
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)


def test_a_run_that_has_ended_has_no_value_later(page):
    page.keys("[data-chart='game-0'] svg", "end")
    readout = page.text("[data-chart='game-0'] .readout")
    assert re.match(r"A –B –C –D [\d.]+", readout) and readout.endswith("kimg")
    page.keys("[data-chart='game-0'] svg", "escape")


def test_names_of_runs_stay_text_and_intervals_are_drawn(page):
    assert "<b>fast" in page.text(".runs") and page.run("return !document.querySelector('.runs td b')")
    assert page.run("return document.querySelectorAll('.whisker').length") == 4 * 2  # on both axes
    assert re.search(r"\[[\d.]+, [\d.]+\]", page.text(".scores"))
