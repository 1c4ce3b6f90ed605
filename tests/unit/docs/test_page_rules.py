"""Rules for pages: short cells, short pages, the command first, four shelves, and answers within two clicks."""

import json
import re
from pathlib import Path

import pytest

from pages import cells
from tests.unit.docs.test_docs import PAGES, anchors

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
EXCEPTIONS = json.loads(Path(__file__).with_name("page_exceptions.json").read_text(encoding="utf-8"))
GENERATED = ("docs/reference/api.md", "docs/reference/cli.md", "docs/reference/settings.md", "docs/reference/recipes/")
SHELVES = ("tutorials", "how-to", "reference")
MAX_WORDS = cells.MAX_WORDS
MAX_LINES = 250
MAX_TOP_LEVEL = 12
QUESTIONS = {  # of a newcomer: the page that answers, and its heading
    "log to W&B": "how-to/results/report.md#experiment-trackers",
    "start from another run": "how-to/networks/weights.md#start-from-weights",
    "change the learning rate in a run": "how-to/train/configuration.md#change-a-run",
    "know what a run costs on 8 GPUs": "how-to/machines/cost.md",
    "hide the GPU": "how-to/train/gpu.md",
    "compute a published FID": "reference/scores.md#published-scores",
    "make an interpolation video": "how-to/results/sampling.md#animations",
    "keep all checkpoints": "how-to/train/configuration.md#change-a-run",
    "train on images that are not square": "how-to/troubleshooting.md#not-a-setting",
    "train the vocoder on my own WAV files": "how-to/data/data-sets.md#sound",
    "use a model file for rows on the command line": "how-to/data/own-data-set.md#networks-and-data-in-files",
    "smooth labels, stop early, add instance noise": "how-to/troubleshooting.md#not-a-setting",
    "know what outputs and inputs of a Term have": "how-to/networks/trainer.md#losses-and-terms",
}


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


def long_cells(text: str) -> list[str]:
    """Cells of tables with more than `MAX_WORDS` words."""
    rows = [line.strip().strip("|") for line in prose(text).splitlines() if line.startswith("|")]
    cells = [re.sub(r"\]\([^)]*\)", "]", cell) for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    return [cell.strip() for cell in cells if len(re.findall(r"\S*\w\S*", cell)) > MAX_WORDS]


def starts_with_a_command(text: str) -> bool:
    """Whether a block of code is the first thing on a page, after its title and at most one paragraph."""
    blocks = text.strip().split("\n\n")
    return any(block.startswith(("```sh\n", "```text\n", "```\n", "```py")) for block in blocks[1:3])


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def links(page: Path) -> set[Path]:
    """The pages that a page links to."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets if ":" not in target}


def test_cells_of_tables_are_short():
    """The exceptions only become fewer: write what is long below the table."""
    counts = {named(page): len(long_cells(page.read_text(encoding="utf-8"))) for page in PAGES}
    assert {name: count for name, count in counts.items() if count} == EXCEPTIONS["long cells"]


def test_pages_are_short():
    """The exceptions only become fewer; generated pages have any length."""
    lines = {named(page): len(page.read_text(encoding="utf-8").splitlines()) for page in PAGES}
    long = [name for name, count in lines.items() if count > MAX_LINES and not name.startswith(GENERATED)]
    assert long == EXCEPTIONS["long pages"]


def test_how_to_pages_start_with_a_command():
    pages = sorted((DOCS / "how-to").rglob("*.md"))
    late = [named(page) for page in pages if not starts_with_a_command(page.read_text(encoding="utf-8"))]
    assert len(pages) > 30 and late == EXCEPTIONS["no command first"]


def test_shelves_have_few_pages_on_their_top_level():
    pages = [page for shelf in SHELVES for page in (DOCS / shelf).glob("*.md")]
    assert len(pages) <= MAX_TOP_LEVEL
    places = {path.relative_to(DOCS).parts[0] for path in DOCS.rglob("*") if path.is_file()}
    assert places == {"index.md", "images", "internals", *SHELVES}


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_is_answered_within_two_clicks_from_the_readme(question):
    path, _, anchor = QUESTIONS[question].partition("#")
    page = DOCS / path
    assert page.exists() and (not anchor or anchor in anchors(page))
    first = links(ROOT / "README.md")
    second = set().union(*(links(target) for target in first if target.suffix == ".md" and target.exists()))
    assert page.resolve() in first | second


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"| {'word ' * 20}| b |\n", 0),
        (f"| {'word ' * 21}| b |\n", 1),
        (f"| a | {'word ' * 10}[link]({'x/' * 30}) {'word ' * 9}|\n", 0),
        (f"```text\n| {'word ' * 30}|\n```\n", 0),
    ],
)
def test_long_cells_are_seen(text, number):
    assert len(long_cells(text)) == number


def test_commands_that_come_late_are_seen():
    assert starts_with_a_command("# Title\n\n```sh\n./run train\n```\n")
    assert starts_with_a_command("# Title\n\nOne paragraph.\n\n```\nparagan train\n```\n")
    assert not starts_with_a_command("# Title\n\nOne.\n\nTwo.\n\n```sh\n./run train\n```\n")
    assert not starts_with_a_command("# Title\n\n## Heading\n\n| a | b |\n")


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("A short text. Of two sentences.", "A short text. Of two sentences."),
        (f"A sentence. {'word ' * 19}", "A sentence."),
        (f"one; {'word ' * 12}, two; {'word ' * 10}", f"one; {'word ' * 12}, two"),
        (f"{'word ' * 15}, {'word ' * 15}", f"{'word ' * 15}"),
        ("word " * 30, "word " * 20),
    ],
)
def test_generated_cell_ends_with_a_sentence_or_a_clause(text, cell):
    shown, rest = cells.split(text)
    assert shown.strip() == cell.strip() and re.findall(r"\w+", f"{shown} {rest}") == re.findall(r"\w+", text)
