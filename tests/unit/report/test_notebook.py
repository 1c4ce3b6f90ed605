"""What a notebook shows of a run and of its samples."""

import re
from base64 import b64decode
from pathlib import Path

import pytest

import paragan as pg

TINY = {
    "data.size": 8, "augment": None, "model.width": 4, "train.kimg": 0.032, "train.batch": 16,
    "evaluation.features": None, "writers": ["images", "jsonl", "report"],
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "one & <two>"
    return pg.train("digits", TINY, out=folder)


def test_run_shows_its_newest_sheet_and_a_link_to_its_report(trained):
    page = trained._repr_html_()
    (image,) = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert b64decode(image) == (trained.folder / "samples" / "step-0000002.png").read_bytes()
    (link,) = re.findall(r'href="([^"]+)"', page)
    assert link.endswith("/one%20%26%20%3Ctwo%3E/report.html")
    assert "/one &amp; &lt;two&gt;/report.html</a>" in page


def test_samples_show_as_a_sheet_and_as_single_images(trained):
    images = trained.sample(8)
    assert images._repr_png_().startswith(b"\x89PNG")
    assert images[0]._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", ["nothing", "link", "folder", "damaged score"])
def test_run_without_sheets_or_with_strange_files_shows_its_folder(tmp_path, kind):
    samples = tmp_path / "samples"
    match kind:
        case "link":
            samples.mkdir()
            (samples / "step-1.png").symlink_to("/dev/zero")
        case "folder":
            (samples / "step-1.png").mkdir(parents=True)
        case "damaged score":
            (tmp_path / "score.json").write_text('{"fd[<b>]": 1.5, "real": 3, "intervals": []}')
    page = pg.Run(tmp_path)._repr_html_()
    assert "<img" not in page
    assert "href" not in page
    assert str(tmp_path) in page
    assert ("fd[&lt;b&gt;] 1.5" in page) == (kind == "damaged score")


def test_score_is_shown(trained):
    Path(trained.folder / "score.json").write_text('{"fd[judge]": 3.25, "coverage": 0.5, "class_variance_mean": 1.0}')
    assert "<p>fd 3.25  coverage 0.5 <a" in trained._repr_html_()
