"""Cells with a loss, a rate, a diet, classes of their own: what is written arrives where it is meant."""

import pytest
import torch

from paragan.config import dump, parse_recipe, read_recipe
from paragan.config.grid_options import CellOptions, GridOptions
from paragan.core.errors import ConfigError
from paragan.core.types import Rows, Side
from paragan.datasets import digits
from paragan.extensions.grid.build import trainer as build_cells
from paragan.extensions.grid.data_shares import DataShares
from paragan.extensions.grid.factory import GridFactory
from paragan.losses import hinge, least_squares, nonsaturating

WORDS = (
    *("train.threads=1", "train.batch=8", "data.size=8", "penalties=[]", "g.ema=null", "evaluation.features=null"),
    *("every.sample_kimg=0", "every.score_kimg=0", "every.save_kimg=0"),
    "model={name: mlp, latent: 4, g_widths: [8], d_widths: [8], conditional: true}",
    *("grid.shape=2x2", "grid.batches=2", "grid.fitness.num_images=12", "grid.executor=loop"),
)
CELLS = """grid.cells=[
  {at: [0, 3], loss: hinge, g: {lr: 1e-4}, d: {lr: 3e-3}},
  {at: [1], classes: [7, '2'], diet: 0.5}]""".replace("\n", " ")


def silent(text):
    pass


def factory(folder, *words):
    return GridFactory(read_recipe("digits", (*WORDS, *words)), folder, silent)


def grid(folder, *words):
    made = factory(folder, *words)
    return made.population([made.cell(number) for number in range(made.options.num_cells)], silent)


def evolution(folder, *words):
    return build_cells.evolution(read_recipe("digits", (*WORDS, *words)), folder, silent, lambda: False)


def test_cell_options_survive_a_round_trip():
    config = read_recipe("digits", (*WORDS, CELLS))
    assert parse_recipe(dump(config), "again") == config
    assert config.grid.of_cell(3) == config.grid.cells[0] and config.grid.of_cell(2) == CellOptions(at=(2,))
    assert config.grid.data_shares == (1.0, 0.5, 1.0, 1.0)


def test_cell_has_its_options_and_otherwise_the_runs(tmp_path):
    cells = grid(tmp_path, CELLS).cells
    assert [cell.players[Side.G].policy.lr for cell in cells] == [1e-4, 1e-3, 1e-3, 1e-4]
    assert [cell.centre[Side.D].traits.lr for cell in cells] == [3e-3, 1e-3, 1e-3, 3e-3]
    assert cells[0].players[Side.D].policy.arguments == cells[1].players[Side.D].policy.arguments  # the run's
    real, fake = torch.tensor([0.3, -2.0]), torch.tensor([0.1, 1.5])
    for cell, kind in zip(cells, (hinge, nonsaturating, nonsaturating, hinge), strict=True):
        assert torch.equal(cell.gan.loss.d(real, fake), kind.d_loss(real, fake))
        assert torch.equal(cell.gan.loss.g(fake, real), kind.g_loss(fake, real))


def test_cell_with_a_fixed_loss_draws_none(tmp_path):
    words = ("grid.losses=[nonsaturating, least_squares]", "grid.cells=[{at: [1], loss: hinge}]", "train.kimg=0.064")
    run = evolution(tmp_path, *words)
    seen = {cell.number: [] for cell in run.cells}
    for _ in range(8):
        run.population.evolve()
        for cell in run.cells:
            seen[cell.number].append(cell.loss)
    real, fake = torch.tensor([0.3, -2.0]), torch.tensor([0.1, 1.5])
    assert run.describe()["grid"]["losses"] == ["nonsaturating", "least_squares", "hinge"]
    assert seen[1] == [2] * 8 and all(set(seen[n]) == {0, 1} for n in (0, 2, 3))
    own, drawn = run.cells[1], run.cells[0]
    assert torch.equal(own.gan.loss.d(real, fake), hinge.d_loss(real, fake))
    kind = (nonsaturating, least_squares)[drawn.loss]
    assert torch.equal(drawn.gan.loss.d(real, fake), kind.d_loss(real, fake))
    assert own.state().record["loss"] == 2


def test_record_names_losses_if_cells_differ(tmp_path):
    assert evolution(tmp_path).describe()["grid"]["losses"] == []
    own = evolution(tmp_path, "grid.cells=[{at: [1], loss: hinge}, {at: [2], loss: hinge}]")
    assert own.describe()["grid"]["losses"] == ["nonsaturating", "hinge"]
    assert [cell.loss for cell in own.cells] == [0, 1, 1, 0]
    assert len({id(cell.gan.loss) for cell in own.cells}) == 2  # the stacked executor computes each once


def test_cell_trains_on_its_classes_only(tmp_path):
    cells = grid(tmp_path, CELLS).cells
    labels = torch.cat([next(cells[1].batches).label for _ in range(60)])
    assert set(labels.tolist()) == {2, 7}
    assert set(torch.cat([next(cells[0].batches).label for _ in range(60)]).tolist()) == set(range(10))
    _, asked = cells[1].gan.prior.draw("g", Rows(step=0, first=0, count=200, total=200))
    assert set(asked.tolist()) == {2, 7} and 60 < int((asked == 2).sum()) < 140
    z, _ = cells[1].gan.prior.draw("g", Rows(step=5, first=3, count=4, total=200))
    whole, y = grid(tmp_path).cells[1].gan.prior.draw("g", Rows(step=5, first=0, count=200, total=200))
    assert torch.equal(z, whole[3:7]) and set(y.tolist()) == set(range(10))


def test_prior_of_the_run_draws_all_classes(tmp_path):
    run = evolution(tmp_path, "grid.cells=[{at: [0, 1, 2, 3], classes: [1]}]")
    for prior in (run.prior, run.cells[0].gan.prior):
        _, y = prior.draw("score", Rows(step=0, first=0, count=100, total=100))
        assert len(set(y.tolist())) == (10 if prior is run.prior else 1)
    _, y = run.prior.draw("fitness", Rows(step=0, first=0, count=12, total=12))
    assert torch.equal(run.population.make_evaluator(0).y_B, y)


def test_fitness_uses_the_data_of_the_cell(tmp_path):
    evaluator = grid(tmp_path, CELLS).make_evaluator(3)
    assert set(evaluator.reals(1).label.tolist()) == {2, 7}
    # the same data is one batch, evaluated once
    assert evaluator.reals(0) is evaluator.reals(2) is not evaluator.reals(1)


def test_unconditional_cell_draws_no_labels(tmp_path):
    cells = grid(tmp_path, "model.conditional=false", "model.name=mlp", CELLS).cells
    assert cells[1].gan.prior.draw("g", Rows(step=0, first=0, count=5, total=5))[1] is None
    assert set(next(cells[1].batches).label.tolist()) == {2, 7}


DIGITS = digits.source(digits.Options(8), "train")


def eaten(cell, *own, **grid):
    return DataShares(GridOptions(shape="2x2", cells=own, **grid), DIGITS, 0).of(cell)


def test_full_diet_is_the_source_object():
    own = CellOptions(at=(0,), diet=0.5)
    assert eaten(1, own) is DIGITS and len(eaten(0, own)) == len(DIGITS) // 2
    assert eaten(0, CellOptions(at=(0,), diet=1.0), diet=0.5) is DIGITS


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("{at: [0, 0]}", "grid.cells.0: at lists 0 twice; list each once"),
        ("{at: []}", "grid.cells.0: at is empty; list at least one"),
        ("{loss: hinge}", "grid.cells.0.at is required; pass grid.cells.0.at=VALUE, a list, each an integer >= 0"),
        ("{at: [1], classes: []}", "grid.cells.0: classes is empty; list at least one"),
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
