"""Rows in the record, the report and the terminal: histograms by column name, and correlations."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import paragan as pg
from paragan.core.source import DerivedSource, TensorSpec
from paragan.datasets.base.column_names import is_table
from paragan.evaluation.column_statistics import row_statistics
from paragan.report.columns import columns_section
from paragan.report.page import Page

SETTINGS = {"train.batch": 4, "train.kimg": 0.008, "every.log_steps": 1, "every.sample_kimg": 0.004}
NAMES = ("age", "income <b>", "buys")


def table(count=300, columns=3, seed=0):
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(count, columns))
    x[:, 1] += x[:, 0]
    return x


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_statistics_equal_those_of_numpy(seed):
    real, made = table(seed=seed), 1.5 * table(200, seed=seed + 9)
    found = row_statistics(torch.from_numpy(real), torch.from_numpy(made), NAMES)
    assert found["total"] == 3 and [column["name"] for column in found["columns"]] == list(NAMES)
    for number, column in enumerate(found["columns"]):
        low, high = real[:, number].min(), real[:, number].max()
        assert (column["low"], column["high"]) == (low, high)
        for part, values in (("data", real[:, number]), ("generated", made[:, number])):
            assert column[part] == np.histogram(values, len(column[part]), (low, high))[0].tolist()
        outside = ((made[:, number] < low) | (made[:, number] > high)).mean()
        assert column["outside"] == pytest.approx(outside, abs=1e-4)
        expected = [real[:, number].mean(), real[:, number].std(), made[:, number].mean(), made[:, number].std()]
        assert column["moments"] == pytest.approx(expected, rel=1e-3)
    for matrix, rows in zip(found["correlations"], (real, made), strict=True):
        np.testing.assert_allclose(matrix, np.corrcoef(rows.T), atol=1e-3)


def test_constants_and_values_that_are_not_finite_are_no_error():
    real = torch.tensor([[0.1, 7.0, 1.0]] * 30 + [[0.1, 7.0, 2.0]] * 10)
    made = torch.tensor([[torch.nan, 7.0, 1.0], [torch.inf, -1e30, 2.0], [0.1, 7.0, 1.5]] * 5)
    first, second, third = (found := row_statistics(real, made))["columns"]
    assert [column["name"] for column in found["columns"]] == ["column 1", "column 2", "column 3"]
    assert sum(first["data"]) == 40 and first["low"] < 0.1 < first["high"]
    assert (sum(first["generated"]), first["outside"]) == (5, pytest.approx(2 / 3, abs=1e-4))
    assert second["outside"] == pytest.approx(1 / 3, abs=1e-4) and sum(third["generated"]) == 15
    assert found["correlations"][0] == [[None] * 3, [None] * 3, [None, None, 1.0]]
    nothing = row_statistics(real, torch.full((4, 3), torch.nan))
    assert nothing["columns"][0]["moments"][2:] == [None, None] and nothing["correlations"][1] == []


def test_one_column_has_no_correlations_and_many_are_bounded():
    assert row_statistics(torch.rand(9, 1), torch.rand(9, 1))["correlations"] == [[], []]
    many = row_statistics(torch.rand(50, 4000), torch.rand(50, 4000), ["a", "b"])
    assert many["total"] == 4000 and len(many["columns"]) == 24 and np.shape(many["correlations"]) == (2, 12, 12)
    assert [column["name"] for column in many["columns"]][:3] == ["a", "b", "column 3"]
    assert len(str(many)) < 20_000


class Frame:
    """What a DataFrame of pandas and polars has."""

    def __init__(self, values, columns):
        self.values = values
        self.columns = columns

    def __len__(self):
        return len(self.values)

    def __getitem__(self, key):
        raise KeyError(key)

    def to_numpy(self):
        return self.values


class Named(pg.Source):
    """A source that knows the names of its columns."""

    fingerprint = "named"

    def __init__(self):
        self.tensors = {"row": TensorSpec((3,), torch.float32)}
        self.column_names = {"row": NAMES}

    def __len__(self):
        return 40

    def fetch(self, indices, places=None, seed=0):
        return {"row": torch.from_numpy(table(40)).float()[torch.as_tensor(indices)]}


class Doubled(DerivedSource):
    fingerprint = "doubled"

    def decode(self, encoded, rows, places=None, seed=0):
        return {"row": 2 * self.source.decode(encoded, rows, places, seed)["row"]}


def structured(values, tmp_path):
    """As NumPy reads the header of a CSV file."""
    path = tmp_path / "table.csv"
    np.savetxt(path, values, delimiter=",", header=",".join(NAMES), comments="")
    return np.genfromtxt(path, delimiter=",", names=True, deletechars="", replace_space=" ")


def stored(values, tmp_path):
    np.savez(tmp_path / "table.npz", row=values.astype(np.float32), columns=np.array(NAMES))
    return np.load(tmp_path / "table.npz")


def trainer(folder, data, columns=3, **settings):
    g = nn.Sequential(nn.Linear(4, columns))
    g.latent = 4
    return pg.Trainer(g, nn.Sequential(nn.Linear(columns, 1)), data, settings=SETTINGS | settings, out=folder)


DATA = {
    "csv": (structured, NAMES),
    "DataFrame": (lambda values, path: Frame(values, list(NAMES)), NAMES),
    "DataFrame by name": (lambda values, path: {"row": Frame(values, list(NAMES))}, NAMES),
    "npz": (stored, NAMES),
    "source": (lambda values, path: Named(), NAMES),
    "derived source": (lambda values, path: Doubled(Named()), NAMES),
    "array": (lambda values, path: values, ("column 1", "column 2", "column 3")),
    "tensor": (lambda values, path: torch.from_numpy(values), ("column 1", "column 2", "column 3")),
    "mapping": (lambda values, path: {"row": values}, ("column 1", "column 2", "column 3")),
}


@pytest.mark.parametrize("kind", DATA)
def test_columns_have_the_names_of_the_data(tmp_path, kind):
    make, names = DATA[kind]
    run = trainer(tmp_path / "run", make(table(40), tmp_path)).run()
    newest = run.records("samples")[-1]["row_statistics"]
    assert tuple(column["name"] for column in newest["columns"]) == names
    assert sum(newest["columns"][0]["data"]) == 40
    assert run.sample(2).shape == (2, 3)


def test_names_that_fit_no_tensor_are_one_line(tmp_path):
    with pytest.raises(pg.DataError, match="columns has 2 names, and no tensor has as many columns"):
        trainer(tmp_path, {"row": table(40), "columns": np.array(["a", "b"])})


class Mixed(Frame):
    def to_numpy(self):
        return np.array(self.values, dtype=object)


MIXED = [(1, 0.5, True), (2, 1.5, False)] * 8


@pytest.mark.parametrize(
    "data",
    [
        Mixed([(1, 0.5, "x")] * 8, list(NAMES)),
        np.array([(1, 0.5, "x")] * 8, [("a", "i4"), ("b", "f8"), ("buys", "U4")]),
    ],
)
def test_a_column_of_text_is_named(tmp_path, data):
    with pytest.raises(pg.DataError, match="column 'buys' holds other values than numbers; encode it, such as one-hot"):
        trainer(tmp_path, data)


def test_a_table_of_mixed_numbers_trains(tmp_path):
    assert trainer(tmp_path, Mixed(MIXED, list(NAMES))).run().is_finished


@pytest.mark.parametrize("make", [structured, stored, lambda values, path: Frame(values, NAMES)])
def test_an_empty_cell_is_named_by_its_column(tmp_path, make):
    values = table(20)
    values[[4, 7], 1] = np.nan
    with pytest.raises(pg.DataError, match="in 2 of 20 samples, number 4, 7, column 'income <b>'; leave them out"):
        trainer(tmp_path / "run", make(values, tmp_path))


@pytest.mark.parametrize("data", [table(3), torch.zeros(3), {"a": 1}, [1.0], nn.Linear(1, 1), Named()])
def test_what_is_no_table(data):
    assert not is_table(data)


def test_page_shows_each_column(tmp_path):
    run = trainer(tmp_path, Frame(table(40), list(NAMES))).run()
    page = Page(Path(run.folder)).render()
    assert re.findall(r'<figcaption><h3>(.*?)</h3></figcaption>\n    <svg viewBox="0 -2', page) == [
        "age", "income &lt;b&gt;", "buys",
    ]  # fmt: skip
    assert page.count('class="filled tone-0"') == page.count('class="outline tone-1"') == 3
    assert '<h3 class="over">Correlations</h3>' in page and "The largest difference is between" in page
    assert "held-out samples throughout" not in page


def test_page_of_many_columns_is_bounded(tmp_path):
    run = trainer(tmp_path, table(40, 3000), 3000).run()
    page = Page(Path(run.folder)).render()
    assert page.count('class="filled tone-0"') == 24 and "2,976 more columns are not shown" in page
    assert len(page) < 300_000


BINS_OF = {"low": 0, "high": 1, "data": [1, 2], "generated": [2, 1], "moments": [0, 1, 0, 1], "outside": 0, "name": "a"}


@pytest.mark.parametrize(
    "value",
    [
        None, 3, "x", [], {}, {"columns": 3}, {"columns": [3, None, {}]},
        *({"columns": [BINS_OF | change]} for change in (
            {"low": 1}, {"low": None}, {"high": float("inf")}, {"data": []}, {"data": [1]}, {"data": "ab"},
            {"generated": [1, -1]}, {"generated": [1, float("nan")]}, {"data": [1, 10**400]},
        )),
    ],
)  # fmt: skip
def test_strange_statistics_are_left_out(value):
    assert columns_section(value) is None


@pytest.mark.parametrize(
    ("change", "num_tables"),
    [
        ({"moments": None}, 2),
        ({"outside": "x"}, 2),
        ({"name": ["x"] * 1000}, 2),
        ({"correlations": [[[1, 0], [0, 1]], [[1], [0, 1]]]}, 0),
        ({"correlations": [[[1, "x"], [None, 1]], [[1, 0], [0, 1]]]}, 2),
        ({"correlations": 7}, 0),
        ({"total": -1}, 2),
        ({"data": [0, 0], "generated": [0, 0]}, 2),
    ],
)
def test_columns_with_parts_that_are_missing(change, num_tables):
    column = BINS_OF | {key: value for key, value in change.items() if key in BINS_OF}
    value = {"total": 2, "columns": [column, column], "correlations": [[[1, 0], [0, 1]]] * 2}
    section = columns_section(value | {key: new for key, new in change.items() if key not in BINS_OF})
    assert len(section["columns"]) == section["total"] == 2 and len(section["correlations"]) == num_tables
    assert all(len(column["name"]) <= 40 for column in section["columns"])


def test_largest_difference_of_correlations_is_said():
    column = BINS_OF
    value = {
        "columns": [column | {"name": name} for name in "abc"],
        "correlations": [[[1, 0.5, -0.001], [0.5, 1, 0], [0, 0, 1]], [[1, 0.4, None], [0.4, 1, -0.7], [None, 0, 1]]],
    }
    section = columns_section(value)
    assert section["largest"] == "The largest difference is between b and c: 0.00 in the data, −0.70 generated."
    assert section["correlations"][0][1][0] == ("a", [("h8", "1.00"), ("h4", "0.50"), ("h0", "0.00")])
    assert section["correlations"][1][1][0][1][2] == ("hx", "–")
