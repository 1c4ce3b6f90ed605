"""The report in a real browser: slider, curves, keyboard, light and dark, and not one request."""

import random
import re
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from paragan.report.page import Page
from tests.browser import made_run
from tests.browser.colours import contrast, luminance
from tests.browser.driver import NEEDED

pytestmark = NEEDED
SAMPLES, SCORES = 6, 7


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_run.make(tmp_path_factory.mktemp("run"), steps=200, scores=SCORES, samples=SAMPLES)


MOVE = """
const slider = document.querySelector("#time");
slider.value = arguments[0];
slider.dispatchEvent(new Event("input", {bubbles: true}));
const [at, frame] = ["#at", "#frame"].map((query) => document.querySelector(query));
return [at.textContent, frame.src, slider.getAttribute("aria-valuetext")];
"""


def test_moving_the_slider_changes_step_and_image(page):
    seen = [page.run(MOVE, n) for n in range(SAMPLES)]
    steps = [int(re.match(r"step ([\d,]+)", text).group(1).replace(",", "")) for text, _, _ in seen]
    assert steps == [n * 4000 // (SAMPLES - 1) for n in range(SAMPLES)]
    assert len({source for _, source, _ in seen}) == SAMPLES
    assert all(source.startswith("data:image/webp;base64,") and told == text for text, source, told in seen)


def test_the_slider_obeys_the_keyboard(page):
    page.keys("#time", "home")
    assert page.text("#at").startswith("step 0 ")
    page.keys("#time", "right", "right")
    assert page.text("#at").startswith("step 1,600 ")
    page.keys("#time", "left")
    assert page.text("#at").startswith("step 800 ")


def test_every_image_is_decoded(page):
    good = "const image = document.querySelector('#frame'); return image.complete && image.naturalWidth === 340"
    for n in range(SAMPLES):
        page.run(MOVE, n)
        page.wait(lambda: page.run(good))


def test_animation_plays_to_the_end_and_stops(page):
    page.click("#play")
    assert page.text("#play") == "❚❚"
    page.wait(lambda: page.text("#play") == "▶")
    assert page.text("#at").startswith("step 4,000 ")


def test_a_class_named_like_a_script_stays_text(page):
    assert page.run("return [...document.querySelectorAll('.rows li')].map(li => li.textContent)") == made_run.ROWS
    box = "return document.querySelectorAll('.rows span')[2].getBoundingClientRect().width"
    assert page.run(box) > 40


def test_a_chart_reads_out_under_the_arrow_keys(page):
    page.keys("[data-chart='game-0'] svg", "home")
    first = page.text("[data-chart='game-0'] .readout")
    page.keys("[data-chart='game-0'] svg", "end")
    last = page.text("[data-chart='game-0'] .readout")
    assert re.search(r"real .*fake .*step 20 ", first) and "step 4,000" in last
    assert page.text("[data-chart='game-1'] .readout").endswith("step 4,000 · 256 kimg")  # all charts at one moment
    page.keys("[data-chart='game-0'] svg", "escape")
    assert page.run("return document.querySelectorAll('.reading').length") == 0


BOX = """
const svg = document.querySelector(arguments[0]);
svg.scrollIntoView({block: "center"});
const box = svg.getBoundingClientRect();
return [box.left, box.top, box.width, box.height, Number(svg.dataset.right), svg.viewBox.baseVal.width];
"""


def test_the_pointer_reads_out_the_value_under_it(page):
    box = page.run(BOX, "[data-chart='metric-0'] svg")
    x = box[0] + box[2] * box[4] / box[5]
    page.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=box[1] + box[3] / 2)
    assert "step 4,000" in page.wait(lambda: page.text("[data-chart='metric-0'] .readout"))


AXIS = """
const figure = document.querySelector("[data-chart='" + arguments[0] + "']");
const points = (axis) => figure.querySelector(`.by-${axis} polyline.smooth`);
const mark = Number(figure.querySelector(".frame").getAttribute("x1"));
return [points("kimg").getBoundingClientRect().width > 0, points("seconds").getBoundingClientRect().width > 0, mark];
"""


@pytest.mark.parametrize("chart", ["metric-0", "game-0"])
def test_curves_switch_between_images_and_time(page, chart):
    page.run(MOVE, 2)
    over_images = page.run(AXIS, chart)
    page.click("#over-seconds")
    over_time = page.run(AXIS, chart)
    assert over_images[:2] == [True, False] and over_time[:2] == [False, True]
    assert re.fullmatch(r"step 1,600 · [\d.]+ s", page.text("#at"))
    page.keys(f"[data-chart='{chart}'] svg", "end")
    assert re.search(r"step 4,000 · [\d.]+ min$", page.text(f"[data-chart='{chart}'] .readout"))
    page.keys(f"[data-chart='{chart}'] svg", "escape")
    page.click("#over-kimg")
    assert page.run(AXIS, chart) == over_images


COLOURS = """
const style = (query) => getComputedStyle(document.querySelector(query));
const inks = ["h1", ".note", ".facts", ".numbers dd", ".events .at"].map((query) => style(query).color);
return [style("body").backgroundColor, style(".tick").fill, ...inks];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_in_dark(page, scheme):
    page.set_scheme(scheme)
    paper, *inks = (luminance(colour) for colour in page.run(COLOURS))
    assert (paper < 0.1) == (scheme == "dark")
    assert min(contrast(paper, ink) for ink in inks) >= 4.5  # WCAG 2, level AA


def test_the_button_switches_and_is_remembered(page):
    page.set_scheme("light")
    before = page.run(COLOURS)[0]
    page.click("#theme")
    assert luminance(page.run(COLOURS)[0]) < 0.1 < luminance(before)
    page.click("#theme")
    assert page.run(COLOURS)[0] == before


def test_nothing_is_wider_than_a_telephone(page):
    with page.screen(360):
        assert page.run("return document.documentElement.scrollWidth") <= 360


def test_page_behind_a_plain_server_follows_the_run_and_keeps_the_slider(browser, tmp_path):
    folder = made_run.make(tmp_path / "run", steps=40, scores=3, samples=5)
    Page(folder).save()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            follow(browser, folder, f"http://127.0.0.1:{server.server_address[1]}/report.html")
        finally:
            browser.open("about:blank")
            server.shutdown()
            thread.join(10)


def follow(browser, folder, address: str) -> None:
    browser.requests(), browser.complaints()
    browser.open(address)
    assert browser.text("#step") == "800"
    browser.run(MOVE, 2)
    browser.run("document.querySelector('details').open = true; document.querySelector('#time').focus()")
    where = browser.text("#at")
    picture = made_run.picture(folder, 1000, (340, 340), random.Random(1))
    made_run.append(folder, picture, made_run.line("event", 1000, text="<img src=x onerror=alert(2)>"))
    Page(folder).save()
    browser.wait(lambda: browser.text("#step") == "1,000")
    assert browser.text("#at") == where and browser.run("return document.querySelector('#time').max") == "5"
    assert browser.run("return document.querySelector('details').open && document.activeElement.id") == "time"
    assert "<img src=x onerror=alert(2)>" in browser.text(".events")
    browser.keys("#time", "end")
    assert browser.text("#at").startswith("step 1,000")
    made_run.append(folder, made_run.line("end", 1000, code=0, reason="finished"))
    Page(folder).save()
    browser.wait(lambda: "finished" in browser.text("#page"))
    assert set(browser.requests()) == {address}
    time.sleep(3)
    assert browser.requests() == []  # an ended run does not change
    assert browser.complaints() == [] and not browser.alert_is_open()
