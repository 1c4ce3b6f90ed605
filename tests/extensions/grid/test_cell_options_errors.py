"""Grids and cells that cannot be: one line each, with the key, as soon as it can be known."""

import pytest

from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from tests.extensions.grid.test_cell_options import WORDS


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("{at: [4]}", "grid: cells.0.at: a 2x2 grid has no cell 4; use 0 to 3"),
        ("{at: [0, 0]}", "grid.cells.0: at lists 0 twice; list each once"),
        ("{at: [0]}, {at: [1, 0]}", "grid: cells: cell 0 is in two entries; list each cell in one"),
        ("{at: []}", "grid.cells.0: at is empty; list at least one"),
        ("{loss: hinge}", "grid.cells.0.at is required; pass grid.cells.0.at=VALUE, a list, each an integer >= 0"),
        ("{at: [1], classes: []}", "grid.cells.0: classes is empty; list at least one"),
        ("{at: [1], labels: [3]}", "grid.cells.0.labels: unknown key; choose one of at, loss, g, d, "),
        ("{at: [1], g: {name: SGD}}", "grid.cells.0.g.name: unknown key; choose one of lr"),
        ("{at: [1], g: {lr: 0}}", "grid.cells.0.g.lr: must be a number > 0 or null, not 0"),
        ("{at: [1], diet: 0}", "grid.cells.0.diet: must be a number > 0 and <= 1 or null, not 0"),
        ("{at: [1], loss: hing}", "grid.cells.0.loss.name: unknown loss 'hing'; choose one of hinge, "),
    ],
)
def test_invalid_cell_options_give_a_one_line_error(word, found):
    with pytest.raises(ConfigError) as caught:
        read_recipe("digits", (*WORDS, f"grid.cells=[{word}]"))
    assert str(caught.value).startswith(f"command line: {found}") and "\n" not in str(caught.value)
