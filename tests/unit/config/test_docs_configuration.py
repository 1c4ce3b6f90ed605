"""docs/how-to/train/configuration.md: its recipe is one, its commands are accepted, and its tables are complete."""

import re
import shlex
from pathlib import Path

import pytest

from paragan.cli.main import main
from paragan.config import read_recipe
from paragan.core import registry

TEXT = (Path(__file__).resolve().parents[3] / "docs/how-to/train/configuration.md").read_text(encoding="utf-8")
(RECIPE,) = re.findall(r"^```yaml\n(.*?)^```", TEXT, re.S | re.M)
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.S | re.M)
COMMANDS = [shlex.split(line, comments=True) for block in BLOCKS for line in block.splitlines()]
CHECKS = [words[1:] for words in COMMANDS if words[1] == "config"]
SHORT_FORMS = re.findall(r"^\| `([a-z]+: [^`]*)` \| `([^`]*)` \|$", TEXT, re.M)


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(RECIPE, encoding="utf-8")


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize("words", CHECKS, ids=[" ".join(words[1:]) for words in CHECKS])
def test_command_of_the_page_is_accepted(words, capsys):
    assert main(words) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize(("short", "long"), SHORT_FORMS)
def test_short_form_of_the_page_equals_the_long_one(short, long):
    configs = []
    for text in (short, long):
        key = text.partition(":")[0]
        rest = re.sub(rf"^{key}:.*\n(^[ -].*\n)*", "", RECIPE, flags=re.M)
        Path("form.yaml").write_text(f"{rest}{text}\n", encoding="utf-8")
        configs.append(read_recipe("form.yaml"))
    assert configs[0] == configs[1]


def test_page_has_commands_and_short_forms():
    assert len(CHECKS) >= 9
    assert len(SHORT_FORMS) >= 5


def test_page_has_every_preset():
    assert set(registry.names("presets")) <= set(re.findall(r"^\| `([\w-]+)` \|", TEXT, re.M))
