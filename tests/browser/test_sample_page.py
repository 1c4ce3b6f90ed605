"""The page of `paragan serve` in a browser: images appear, and change with class, seed, truncation and walk."""

import pytest

from paragan.runs.open_generator import open_generator
from tests import tiny_run
from tests.browser.driver import NEEDED
from tests.served_runs import serving

pytestmark = NEEDED


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "run"
    tiny_run.train(folder)
    with serving(open_generator(folder)) as server:
        yield server


def test_sample_page_shows_other_images_for_other_controls(browser, server):
    browser.complaints()
    browser.open(server.address)
    shown = browser.wait(lambda: browser.run("return document.getElementById('images').src"))
    for name, value in (("class", "3"), ("num", "4"), ("truncation", "0.5"), ("walk", "0.5")):
        browser.run(
            "const control = document.getElementById('controls').elements[arguments[0]];"
            "control.value = arguments[1]; control.dispatchEvent(new Event('input', {bubbles: true}));",
            name,
            value,
        )
        before = shown
        shown = browser.wait(lambda before=before: _other(browser, before))
    browser.click("#next")
    browser.wait(lambda: _other(browser, shown))
    assert browser.run("return document.getElementById('images').naturalWidth") > 100
    assert browser.text("#cut") == "0.50"
    assert browser.complaints() == []


def _other(browser, before):
    found = browser.run("return document.getElementById('images').src")
    return found if found != before else None
