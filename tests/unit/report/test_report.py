"""report.html: what is on it, that it stays small and safe, and that any record gives a page."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from paragan.cli.report import report
from paragan.core.errors import CheckpointError, ConfigError, DataError
from paragan.report.page import Page
from paragan.report.sample_frames import save_run_animation
from paragan.report.series import CAPACITY
from paragan.writers.report import Writer
from tests.browser import made_run


class Parsed(HTMLParser):
    """Tags with their attributes, the text of the page, and what stands in style and script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text, self.inside, self._open = "", {}, ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, {name: value or "" for name, value in attributes}))
        self._open = tag

    def handle_data(self, data):
        self.text += data
        if self._open in ("style", "script"):
            self.inside.setdefault(self._open, []).append(data)

    def handle_endtag(self, tag):
        self._open = ""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_run.make(tmp_path_factory.mktemp("run"), steps=300, scores=7, samples=6)


@pytest.fixture(scope="module")
def page(run):
    return Page(run).render()


def data_of(page: str) -> dict:
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.S).group(1))


def points_of(page: str, metric: str) -> int:
    """Dots of the curve of a metric, equally many over images and over time."""
    (curve,) = re.findall(rf'data-line="{re.escape(metric)}">(.*?)<g class="by-seconds">(.*?)</g>', page, re.S)
    counts = {sum(len(re.findall(r"M[\d.]+ [\d.]+h0", d)) for d in re.findall(r' d="(.*?)"', part)) for part in curve}
    (count,) = counts
    return count


def record(folder, *lines: str):
    folder.mkdir(exist_ok=True)
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("metric", ["fd[judge]", "label_accuracy", "coverage", "class_variance_min"])
def test_a_metric_has_a_point_for_each_evaluation_of_the_record(page, run, metric):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    evaluations = sum(1 for line in lines if json.loads(line)["kind"] == "score")
    assert points_of(page, metric) == evaluations == 7


def test_the_page_shows_what_a_practitioner_decides_by(page):
    text = Parsed(page).text
    for told in (
        *("sngan-zoo", "running", "D outputs", "Adversarial losses", "Gradient norms", "Penalties"),
        *("Learning rates", "Throughput", "Data wait", "Sample diversity", "D overfits"),
        *("augment.name=diffaugment", " --num 64", "0.0004", "writer tensorboard failed", "2 checkpoints"),
        *("reference.num_images", "402,113 parameters"),
    ):
        assert told in text, told


def test_page_mentions_several_ranks_and_few_pairs(tmp_path):
    players = {"g": {"strategy": "zero3"}, "d": {"strategy": "ddp"}}
    told = made_run.line("start", 0, ranks=2, hosts=1, players=players, data={"held_out_pairs": 4})
    (tmp_path / "metrics.jsonl").write_text(json.dumps(told) + "\n")
    text = Parsed(Page(tmp_path).render()).text
    assert "2 ranks on 1 host: G zero3, D ddp" in text
    assert " --num 4" in text and "--num 64" not in text
    (tmp_path / "metrics.jsonl").write_text(json.dumps(told | {"ranks": 1, "data": {"held_out_pairs": 400}}) + "\n")
    alone = Parsed(Page(tmp_path).render()).text
    assert "zero3" not in alone and "--num 64" in alone


def test_text_of_the_run_stays_text(page):
    parsed = Parsed(page)
    assert "<script>alert(1)</script>" in parsed.text
    assert [a for tag, a in parsed.tags if tag == "script"] == [{"type": "application/json", "id": "data"}, {}]
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"zoo", "full", "b>bold"})
    assert "<script>alert" not in page


def test_nothing_on_the_page_leaves_it(page):
    parsed = Parsed(page)
    links = [a[name] for _, a in parsed.tags for name in ("src", "href", "action", "srcset") if name in a]
    assert all(link.startswith("data:") for link in links)
    assert "data:," in links  # an icon of its own, or a browser asks for /favicon.ico
    assert "url(" not in page and "@import" not in page and "http" not in page.replace("http-equiv", "")


def test_the_policy_allows_this_style_and_this_script_alone(page):
    parsed = Parsed(page)
    (policy,) = [a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy"]
    for kind, text in (("style", parsed.inside["style"][0]), ("script", parsed.inside["script"][-1])):
        assert f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not [a for _, a in parsed.tags if "style" in a or any(name.startswith("on") for name in a)]


def test_page_may_request_itself_until_the_run_ends(tmp_path):
    folder = made_run.make(tmp_path / "run", steps=20)
    running = Parsed(Page(folder).render())
    made_run.append(folder, made_run.line("end", 400, code=0, reason="finished"))
    ended = Parsed(Page(folder).render())
    policies = [[a["content"] for _, a in page.tags if "http-equiv" in a] for page in (running, ended)]
    assert "connect-src 'self'" in policies[0][0] and "connect-src" not in policies[1][0]
    assert ["data-reloads" in dict(page.tags)["html"] for page in (running, ended)] == [True, False]


def test_page_of_long_run_is_small_with_first_and_last_sample(tmp_path):
    folder = made_run.make(tmp_path / "run", steps=2_500, scores=100, samples=65, size=(340, 280))
    page = Page(folder).render()
    assert len(page.encode()) <= 1_800_000  # 5 MB is promised
    frames = data_of(page)["tracks"][0]
    assert (frames[0]["step"], frames[-1]["step"]) == (0, 50_000) and 20 <= len(frames) <= 61
    lines = re.findall(r'points="([^"]*)"', page)
    assert max(len(points.split()) for points in lines) <= 2 * CAPACITY
    assert points_of(page, "coverage") == 100


def test_page_marks_values_that_are_not_numbers(tmp_path):
    folder = made_run.make(tmp_path / "run", steps=30)
    made_run.append(folder, made_run.line("step", 620, **{"d/real": float("nan"), "d/fake": float("-inf")}))
    page = Page(folder).render()
    assert page.count('class="bad"') == 4  # two lines, on both axes
    assert "d/real is not finite" in page and "NaN" not in page and "Infinity" not in page


LINES = [
    "",
    "{",
    "[" * 5000,
    '{"kind": "step"}',
    '{"kind": "step", "step": NaN, "kimg": 0}',
    '{"kind": "step", "step": 1, "kimg": 1e999}',
    '{"kind": "score", "step": 1, "kimg": 1, "fd": NaN, "num_images": null, "protocol": [1]}',
    '{"kind": "score", "step": 1, "kimg": 1, "protocol": ' + '{"a":' * 300 + "1" + "}" * 301,
    '{"kind": "start", "step": 1, "kimg": 1, "players": [1], "data": 3, "changed": {"a": 1}, "commands": "x"}',
    '{"kind": "advice", "step": 1, "kimg": 1, "name": null}',
    '{"kind": "event", "step": 1, "kimg": 1, "text": "\\ud800\\u001b[2J"}',
    '{"kind": ["end"], "step": 1, "kimg": 1}',
    '{"kind": "telemetry", "step": -5, "kimg": -5, "diversity": -1e308}',
    '{"kind": "step", "step": 1, "kimg": 1, "seconds": Infinity, "d/real": 1}',
    '{"kind": "score", "step": 1, "kimg": 1, "fd": 3}\n{"kind": "score", "step": 2, "kimg": 2, "fd": null}',
]


@pytest.mark.parametrize("line", LINES)
def test_any_line_gives_a_page(tmp_path, line):
    folder = record(tmp_path / "run", line, '{"kind": "event", "step": 9, "kimg": 1, "text": "still here"}')
    page = Page(folder).render()
    page.encode()
    assert "still here" in page


def test_no_run_folder_is_refused_in_one_line(tmp_path):
    for place, problem in ((tmp_path, "a folder without"), (tmp_path / "none", "missing")):
        pattern = rf"{re.escape(str(place))}: not a run folder \({problem}"
        with pytest.raises(CheckpointError, match=pattern) as error:
            Page(place).render()
        assert "\n" not in str(error.value)


def test_writer_renders_page_at_evaluations_first_samples_and_end(tmp_path):
    folder = made_run.make(tmp_path / "run", steps=20)
    page, writer = folder / "report.html", Writer(None, folder, 0)
    for kind, step, made in (("step", 0, 0), ("samples", 0, 1), ("samples", 20, 0), ("score", 20, 1), ("end", 20, 0)):
        page.unlink(missing_ok=True)
        writer.write(SimpleNamespace(kind=kind, step=step))
        assert page.exists() == bool(made), kind
    made_run.append(folder, made_run.line("event", 999, text="the last word"))
    writer.close()
    assert "the last word" in page.read_text()
    assert not list(folder.glob(".*"))


def test_images_outside_samples_and_bombs_are_not_opened(tmp_path):
    folder = tmp_path / "run"
    Image.new("RGB", (10, 10), "red").save(tmp_path / "secret.png")
    record(
        folder,
        json.dumps(made_run.line("samples", 0, path="../secret.png")),
        json.dumps(made_run.line("samples", 1, path="samples/bomb.png")),
    )
    (folder / "samples").mkdir()
    Image.new("1", (8100, 8100)).save(folder / "samples" / "bomb.png")  # a few kB that unpack to 200 MB
    assert "data:image" not in Page(folder).render()


def test_animation_of_run_loops_forever(run, tmp_path):
    report(run, film=tmp_path / "film.webp")
    with Image.open(tmp_path / "film.webp") as made:
        assert made.n_frames == 6 and made.info["loop"] == 0


def test_animation_without_samples_or_of_unknown_format_raises(tmp_path, run):
    with pytest.raises(DataError, match=r"the run has no samples/step-\*\.png; train with a lower every\.sample_kimg"):
        save_run_animation(tmp_path, tmp_path / "film.webp")
    with pytest.raises(ConfigError, match=r"--film: cannot write 'film\.avi'; an animation is \.webp, \.gif or \.mp4"):
        report(run, film=Path("film.avi"))


def test_command_writes_the_page_and_prints_its_path(run, tmp_path, capsys):
    report(run, out=tmp_path / "page.html")
    assert capsys.readouterr().out.strip() == str(tmp_path / "page.html")
    report(run, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told == {"path": str(run / "report.html"), "bytes": (run / "report.html").stat().st_size}
