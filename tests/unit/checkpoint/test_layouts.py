"""Tables of published projects: a new one is one file, which the documentation lists."""

import re
from pathlib import Path

import torch

from paragan.checkpoint import layouts
from paragan.core.layout import StoredTensors
from tests.architecture.conftest import ROOT

NEW = """
import re
from paragan.checkpoint.layouts._names import ProjectWeights
from paragan.core.types import Side

PROJECT = "a new one"
KNOWN_BY = re.compile("new")


def networks(weights):
    yield ProjectWeights(project=PROJECT, side=Side.G, tensors={"w": weights["new.w"]}, settings={"name": "mlp"})
"""


def test_every_file_of_the_folder_is_a_table_that_the_page_lists():
    page = (ROOT / "docs/how-to/networks/weights.md").read_text()
    files = {path.stem for path in Path(layouts.__file__).parent.glob("[a-z]*.py")}
    assert {layout.__name__.rpartition(".")[2] for layout in layouts.project_layouts()} == files
    for layout in layouts.project_layouts():
        assert isinstance(layout.KNOWN_BY, re.Pattern)
        assert layout.PROJECT.split(" ")[0] in page


def test_a_new_file_is_read_without_a_list_of_names(tmp_path, monkeypatch):
    (tmp_path / "made_up_project.py").write_text(NEW)
    monkeypatch.setattr(layouts, "__path__", [*layouts.__path__, str(tmp_path)])
    layouts.project_layouts.cache_clear()
    try:
        weights = layouts.published_weights(StoredTensors.of({"new.w": torch.ones(3)}), {"w": (3,)})
    finally:
        monkeypatch.undo()
        layouts.project_layouts.cache_clear()
    assert weights is not None and weights.project == "a new one"
