"""Labels that a network has no row for, and complex numbers for real weights: the data is named, not the network."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import paragan as pg
from paragan.game.network import CalledNetwork
from tests.unit.api.test_trainer import TINY, trainer

COUNT = 20


class Embedded(nn.Module):
    latent = 3

    def __init__(self):
        super().__init__()
        self.classes = nn.Embedding(3, 4)
        self.layer = nn.Linear(3 + 4, 2)

    def forward(self, latent, label):
        return self.layer(torch.cat([latent, self.embedded(label)], 1))

    def embedded(self, label):
        return self.classes(label)


class OneHot(Embedded):
    def embedded(self, label):
        return functional.pad(functional.one_hot(label, 3), (0, 1)) * self.classes.weight.mean()


class Indexed(Embedded):
    def embedded(self, label):
        return self.classes.weight[label]


class Folded(Embedded):
    def embedded(self, label):
        return self.classes(label % 3)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def forward(self, point):
        return self.layer(point)


def data(label=0, row=COUNT - 1, dtype=torch.int64):
    labels = torch.arange(COUNT, dtype=dtype) % 3
    labels[row] = label
    return {"point": torch.randn(COUNT, 2, dtype=torch.float64), "label": labels}


def run_on(tmp_path, samples, g=Embedded, **arguments):
    return trainer(tmp_path / "run", samples, g, Critic, terms=(), **arguments).run()


# of Indexed, -1 is the last row
@pytest.mark.parametrize(("g", "label"), [(Embedded, 5), (Embedded, -1), (OneHot, 5), (OneHot, -1), (Indexed, 5)])
def test_a_label_without_a_row_is_named_before_a_file_is_written(tmp_path, g, label):
    with pytest.raises(pg.ConfigError, match=f"^data: label is {label}") as raised:
        run_on(tmp_path, data(label), g)
    assert ("3 classes, 0 to 2" in str(raised.value)) == (g is Embedded)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("g", [Embedded, OneHot, Indexed])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_labels_that_are_no_class_numbers_are_named(tmp_path, g, kind):
    with pytest.raises(pg.ConfigError, match=f"^data: label is float64, and {g.__name__} takes it for the number of"):
        run_on(tmp_path, data(dtype=kind), g)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["bool", "uint8", "int16"])
def test_labels_of_types_that_no_embedding_takes_are_named(tmp_path, kind):
    with pytest.raises(pg.ConfigError, match=f"^data: label is {kind}, .* as int64"):
        run_on(tmp_path, {**data(), "label": data()["label"].to(getattr(torch, kind))})


def test_an_index_that_a_network_computes_is_its_own_problem():
    class Own(Embedded):
        def embedded(self, label):
            return self.classes(label / 2)

    with pytest.raises(RuntimeError, match="scalar types"):
        CalledNetwork(module=Own())(torch.zeros(2, 3), torch.tensor([0, 1]))


class Counting(nn.Module):
    """Counts its calls, which look rows up by label."""

    def __init__(self):
        super().__init__()
        self.count = 0
        self.rows = nn.Embedding(3, 4)

    def forward(self, x, label):
        self.count += 1
        return self.rows(label)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8])
@pytest.mark.parametrize("kind", ["next to whole numbers", "rows of tokens", "one"])
def test_numbers_of_another_type_are_named_without_a_second_call(kind, dtype):
    label = torch.ones((4, 5) if kind == "rows of tokens" else 4).to(dtype)
    sample = torch.ones(4, 8) if kind == "next to whole numbers" else torch.randn(4, 8)
    net = Counting()
    with pytest.raises(pg.ConfigError, match=r"^here: label is \w+, and Counting takes it for the number of a class"):
        CalledNetwork(module=net, place="here")(sample, label)
    assert net.count == 1


def test_labels_that_the_network_folds_are_not_refused(tmp_path):
    assert run_on(tmp_path, data(5), Folded).is_finished


@pytest.mark.parametrize("kind", ["a list", "a stream", "held out"])
def test_a_label_that_is_read_later_is_one_line(tmp_path, kind):
    columns = data(5, row=11)
    rows = [{name: values[row] for name, values in columns.items()} for row in range(COUNT)]
    samples = {"a list": rows, "a stream": lambda epoch: rows, "held out": data()}[kind]
    held_out = {"held_out": rows} if kind == "held out" else {}
    argument = "held_out" if held_out else "data"
    problem = f"^{argument}: label is 5, and Embedded has an embedding of 3 classes, 0 to 2"
    with pytest.raises(pg.ConfigError, match=problem):
        run_on(tmp_path, samples, settings={**TINY, "train.kimg": 0.1}, **held_out)


def test_held_out_rows_of_labels_that_are_not_trained_are_left_out_and_named(tmp_path, capsys):
    assert run_on(tmp_path, data(), settings={**TINY, "train.kimg": 0.1}, held_out=data(5, row=11)).is_finished
    assert capsys.readouterr().err.count("left out, with 1 of the held-out images: '5'") == 1


def test_complex_rows_are_named_where_real_weights_fail(tmp_path):
    samples = {"point": torch.randn(COUNT, 2, dtype=torch.complex128), "label": data()["label"]}
    with pytest.raises(pg.ConfigError, match=r"^data: point is complex128, and Critic has real weights"):
        run_on(tmp_path, samples)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        (7, "labels: label is 7, and Embedded has an embedding of 3 classes, 0 to 2"),
        (-1, "labels: label is -1"),
        ([], r"labels is \[\]; pass the number of a class"),
        ("x", "labels is 'x'; pass the number of a class"),
        ([1.5], r"labels is \[1.5\]; pass the number of a class"),
    ],
)
def test_labels_of_samples_are_named(finished, labels, problem):
    with pytest.raises(pg.ConfigError, match=f"^{problem}"):
        finished.sample(4, labels=labels)


def test_labels_of_samples_are_taken(finished):
    assert finished.sample(4, labels=[0, 2]).shape == (4, 2)


class OfRows(Embedded):
    """G whose labels are one-hot rows."""

    def embedded(self, label):
        return label.to(self.classes.weight.dtype) @ self.classes.weight


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_labels_of_samples_are_rows_where_those_of_the_data_are(tmp_path, dtype):
    rows = {**data(), "label": functional.one_hot(torch.arange(COUNT) % 3, 3).to(dtype)}
    run = run_on(tmp_path, rows, g=OfRows)
    by_number = run.sample(6, labels=[0, 1, 2])
    assert torch.equal(by_number, run.sample(6))  # the labels of the data, in their order
    assert not torch.equal(by_number, run.sample(6, labels=1))
    with pytest.raises(pg.ConfigError, match=r"^labels: .*below 3"):
        run.sample(2, labels=[3])


@pytest.mark.parametrize("g", [lambda fake: -fake, lambda fake, real: real - fake])
def test_a_loss_of_g_that_takes_other_logits_is_refused_with_its_call(tmp_path, g):
    loss = pg.Loss(lambda real, fake: fake - real, g)
    with pytest.raises(pg.ConfigError, match=r"g_loss\(fake, None; g_needs_real=True passes real logits\)"):
        run_on(tmp_path, data(), loss=loss)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run_on(tmp_path_factory.mktemp("labels"), data())
