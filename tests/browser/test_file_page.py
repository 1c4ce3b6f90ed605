"""Pages of `paragan serve` for pictures and sounds in a browser: drop or choose a file, see or hear the output."""

import base64

import numpy as np
import pytest

import paragan as pg
from paragan.cli.main import main
from tests.browser.driver import NEEDED
from tests.served_runs import serving, train
from tests.unit.export.image_runs import noise

pytestmark = NEEDED

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

_DROP = """
const bytes = Uint8Array.from(atob(arguments[1]), (letter) => letter.charCodeAt(0));
const dropped = new DataTransfer();
dropped.items.add(new File([bytes], arguments[0]));
const event = (name) => new DragEvent(name, {dataTransfer: dropped, bubbles: true, cancelable: true});
const area = document.getElementById("drop");
return [area.dispatchEvent(event("dragover")), area.dispatchEvent(event("drop"))];
"""


@pytest.fixture(scope="module")
def run(request, tmp_path_factory):
    """The folder of a run of the recipe that a test names."""
    return train(tmp_path_factory.mktemp("served"), request.param)


@pytest.fixture
def page(browser, run):
    """The page of a run, which requests nothing of other places; the console stays empty."""
    with serving(pg.load(run)) as server:
        browser.requests(), browser.complaints()
        browser.open(server.address)
        yield browser
        assert all(url.startswith((server.address, "blob:")) for url in browser.requests())
        assert browser.complaints() == []


def of_run(name):
    return pytest.mark.parametrize("run", [name], indirect=True)


def shown(page, name):
    """The address of the input or output; None while it is hidden or not loaded."""
    script = """
    const media = document.getElementById(arguments[0]);
    return !media.hidden && (media.naturalWidth > 0 || media.duration > 0) ? media.src : null"""
    return page.run(script, name)


@of_run("superres")
def test_picture_is_enlarged_next_to_the_input_and_saved_under_its_name(page, run, tmp_path):
    noise(37, 23).save(tmp_path / "my photo.v2.png")
    assert page.run("document.getElementById('file').focus(); return document.activeElement.id") == "file"
    page.choose("#file", tmp_path / "my photo.v2.png")
    page.wait(lambda: shown(page, "output"))
    sizes = page.run("return ['input', 'output'].map((id) => document.getElementById(id).naturalWidth)")
    assert sizes == [37, 148]
    left, right = page.run(
        "return ['input', 'output'].map((id) => document.getElementById(id).getBoundingClientRect().toJSON())"
    )
    assert left["right"] <= right["left"] and left["top"] == right["top"] and left["width"] == right["width"]
    page.command("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path / "saved"))
    page.click("#download")
    saved = tmp_path / "saved" / "my photo.v2.png"
    page.wait(saved.exists)
    assert main(["apply", str(run), str(tmp_path / "my photo.v2.png"), "--out", str(tmp_path / "out")]) == 0
    assert saved.read_bytes() == (tmp_path / "out" / "my photo.v2.png").read_bytes()


@of_run("superres")
def test_wrong_files_are_one_line_and_hide_the_last_output(page, tmp_path):
    noise(9, 9).save(tmp_path / "photo.png")
    (tmp_path / "notes.txt").write_text("no picture")
    page.choose("#file", tmp_path / "photo.png")
    page.wait(lambda: shown(page, "output"))
    page.run("document.getElementById('controls').dataset.most = 20")
    page.choose("#file", tmp_path / "photo.png")
    page.run("document.getElementById('controls').dispatchEvent(new Event('input'))")
    page.wait(lambda: "photo.png is larger than 0 MiB" in page.text("#status"))
    assert shown(page, "output") is None and page.run("return document.getElementById('download').hidden")
    page.choose("#file", tmp_path / "notes.txt")
    page.wait(lambda: "this file: " in page.text("#status"))
    assert [entry for entry in page.complaints() if "400" not in entry] == []
    assert shown(page, "output") is None


@of_run("translate")
def test_dropped_picture_is_translated_in_the_direction_of_choice(page, tmp_path):
    noise(31, 18).save(tmp_path / "photo.png")
    content = base64.b64encode((tmp_path / "photo.png").read_bytes()).decode()
    assert page.run(_DROP, "photo.png", content) == [False, False]  # the browser opens nothing itself
    first = page.wait(lambda: shown(page, "output"))
    assert page.run("return document.getElementById('output').naturalHeight") == 18
    page.requests()
    page.run(
        "const choice = document.getElementById('controls').elements.direction;"
        "choice.value = 'b_to_a'; choice.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    page.wait(lambda: shown(page, "output") not in (None, first))
    assert any(url.endswith("/apply?direction=b_to_a") for url in page.requests())
    assert page.run("return document.getElementById('download').download") == "photo.png"


@of_run("codec")
def test_sound_is_heard_before_and_after(page, tmp_path):
    soundfile.write(tmp_path / "voice.flac", np.random.default_rng(0).normal(0, 0.1, 11_025).clip(-1, 1), 22_050)
    page.choose("#file", tmp_path / "voice.flac")
    page.wait(lambda: shown(page, "input") and shown(page, "output"))
    for name in ("input", "output"):
        assert page.run(f"return document.getElementById('{name}').duration") == pytest.approx(0.5, abs=0.01)
        page.keys(f"#{name}", "space")
        page.wait(lambda name=name: page.run(f"return document.getElementById('{name}').currentTime") > 0)
    assert page.run("return document.getElementById('download').download") == "voice.wav"
