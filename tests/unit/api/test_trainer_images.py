"""Images of a `pg.Trainer` are scored by an extractor, as those of a data set by name."""

import numpy as np
import pytest
import torch

import paragan as pg
from paragan.datasets import digits
from paragan.datasets.base.ragged import Padding
from paragan.datasets.base.tensor_source import TensorSource
from paragan.evaluation import tensor_images
from paragan.features.base import classifier
from paragan.game.network import CalledNetwork
from paragan.loading.order import ClassOrder
from tests.unit.api.test_trainer_samples import Critic, Labelled, Maker

SETTINGS = {
    "train.batch": 4, "train.kimg": 0.008, "every.log_steps": 1, "every.sample_kimg": 0, "evaluation.num_images": 30,
    "evaluation.resamples": 0,
}  # fmt: skip
SHAPE = (1, 16, 16)


@pytest.fixture(autouse=True)
def _short_judge(monkeypatch):
    monkeypatch.setattr(classifier, "STEPS", 8)


class Enlarged(Maker):
    def __init__(self, shape=SHAPE):
        super().__init__(shape, 16)

    def forward(self, low):
        return super().forward(low.flatten(1))


def images(count=60, split="train"):
    return digits.source(digits.Options(), split).fetch(np.arange(count))


def trainer(folder, g=Maker, data=None, shape=SHAPE, held_out=None, **settings):
    data = data if data is not None else {"x": images()["image"]}
    values = SETTINGS | {key.replace("__", "."): value for key, value in settings.items()}
    return pg.Trainer(g(shape), Critic(shape), data, held_out=held_out, settings=values, out=folder)


def floats(low, high, shape=SHAPE, count=60):
    return {"x": torch.rand(count, *shape) * (high - low) + low}


@pytest.mark.parametrize("kind", ["uint8", "float", "colour"])
def test_images_are_scored_by_the_judge_and_a_line_says_so(tmp_path, capsys, kind):
    data = {"uint8": None, "float": floats(-1, 1), "colour": floats(0, 1, (3, 8, 8))}[kind]
    run = trainer(tmp_path, data=data, shape=(3, 8, 8) if kind == "colour" else SHAPE).run()
    assert np.isfinite(run.score["fd[judge]"])
    protocol = run.records("score")[-1]["protocol"]
    assert (protocol["extractor"], protocol["extractor_task"]) == ("judge", "rotation")
    assert (protocol["reference"]["num_images"], protocol["held_out"]) == (30, "a fifth of the samples in training")
    assert "training a classifier on" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:generator. forward.latent. ends in a tanh:UserWarning")
@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (floats(-3, 3), SHAPE),  # normalised by mean and deviation: no images in [-1, 1]
        (floats(-1, 1, (4, 16, 16)), (4, 16, 16)),  # latents of an autoencoder
        (floats(-1, 1, (1, 4, 4)), (1, 4, 4)),
        (floats(-1, 1, (6,)), (6,)),
        (floats(-1, 1, (1, 200)), (1, 200)),
        (lambda epoch: [{"x": torch.zeros(SHAPE)}] * 8, SHAPE),
        (None, SHAPE),
    ],
    ids=["range", "latents", "tiny", "rows", "audio", "streamed", "off"],
)
def test_other_samples_are_not_scored_by_default(tmp_path, data, shape):
    off = {"evaluation__features": None} if data is None else {}
    run = trainer(tmp_path, data=data, shape=shape, **off).run()
    assert run.score == {} and run.is_finished
    if data is not None:
        with pytest.raises(pg.ConfigError, match=r"evaluation\.features=judge scores images"):
            trainer(tmp_path / "judge", data=data, shape=shape, evaluation__features="judge").run()


def test_named_metrics_of_features_are_scored_and_those_of_pairs_compare_held_out_samples(tmp_path):
    run = trainer(tmp_path / "kid", evaluation__metrics=["kid", "fd"]).run()
    assert set(run.score) == {"kid[judge]", "fd[judge]"}
    low = {"x": images()["image"], "low": torch.rand(60, 16)}
    run = trainer(tmp_path / "l1", Enlarged, low, held_out=low, evaluation__metrics=["l1"]).run()
    assert set(run.score) == {"l1"} and run.config.evaluation.features is None


def test_held_out_images_are_the_real_ones_of_a_score(tmp_path):
    run = trainer(tmp_path, held_out={"x": images(20, "held_out")["image"]}).run()
    protocol = run.records("score")[-1]["protocol"]
    assert protocol["real"]["num_images"] == 20 and "held_out" not in protocol


@pytest.mark.parametrize("labels", ["int64", "uint8", "int32", "from one", "float"])
def test_labels_in_memory_are_the_classes_of_the_judge(tmp_path, labels):
    label = images()["label"]
    kinds = {"int64": label, "uint8": label.byte(), "int32": label.int(), "from one": label + 1, "float": label.float()}
    run = trainer(tmp_path, Labelled, {"x": images()["image"], "label": kinds[labels]}).run()
    task = run.records("score")[-1]["protocol"]["extractor_task"]
    assert task == ("classes" if "int" in labels else "rotation")
    assert ("label_accuracy" in run.score) == ("int" in labels)


def test_a_score_without_a_value_says_so(tmp_path, capsys):
    trainer(tmp_path, data={"x": images(2)["image"]}).run()
    lines = capsys.readouterr().out.splitlines()
    assert any("training a classifier on 1 of your images" in line for line in lines)
    assert any("no metric has a value, usually for too few images" in line for line in lines)


def test_equal_images_train_without_scores_and_the_line_says_why(tmp_path, capsys):
    trainer(tmp_path, data={"x": images(1)["image"].repeat(12, 1, 1, 1)}).run()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "equal features" in line]
    assert line.startswith("warning: score: fd[judge] has no value") and "the images are equal, or" in line


def test_generated_images_are_those_of_the_inputs_of_random_samples():
    low = torch.randn(12, 16)
    source = TensorSource({"x": torch.zeros(12, *SHAPE, dtype=torch.uint8), "low": low}, Padding())
    prior = pg.Prior(seed=3, latent=0, discriminator_arguments=("x",), generator_arguments=("low",))
    g = Enlarged().eval()
    generate = tensor_images.sample_inputs(CalledNetwork(module=g), source, prior, 30, "eval")
    whole, labels = generate(0, 30)
    assert labels is None and whole.shape == (30, *SHAPE)
    # two epochs of all samples and six of the third, each in a random order
    every = g(low).detach()
    number_of = [int((every - x).square().sum((1, 2, 3)).argmin()) for x in whole]
    assert sorted(number_of[:12]) == sorted(number_of[12:24]) == list(range(12)) and len(set(number_of[24:])) == 6
    assert number_of[:12] != list(range(12))
    torch.testing.assert_close(generate(20, 7)[0], whole[20:27])


@pytest.mark.parametrize("count", [2, 3, 10, 61])
def test_without_held_out_samples_a_fifth_is_held_out(count):
    x = torch.arange(count, dtype=torch.uint8)[:, None, None, None].expand(count, *SHAPE).contiguous()
    source = TensorSource({"x": x}, Padding())
    parts = [
        part.fetch(np.arange(len(part)))["image"][:, 0, 0, 0].tolist()
        for part in tensor_images.both_splits(source, source, "x")[:2]
    ]
    assert sorted(parts[0] + parts[1]) == list(range(count))
    assert len(parts[1]) == -(-count // 5)


def test_float_images_equal_the_bytes_of_a_file():
    pixels = images(4)["image"]
    source = TensorSource({"x": pixels.float() / 127.5 - 1}, Padding())
    assert torch.equal(tensor_images.SampleImages(source, "x").fetch(np.arange(4))["image"], pixels)


@pytest.mark.parametrize("shape", [(16, 16, 1), (24, 20, 3), (12, 12, 4)])
@pytest.mark.parametrize("kind", ["mapping", "array", "dataset"])
def test_bytes_with_the_channels_last_are_refused_with_the_order_to_pass(tmp_path, shape, kind):
    x = torch.zeros(8, *shape, dtype=torch.uint8)
    data = {"mapping": {"x": x}, "array": {"x": x.numpy()}, "dataset": [{"x": row} for row in x]}[kind]
    with pytest.raises(pg.ConfigError, match=r"x\.permute\(0, 3, 1, 2\) of all images, \.permute\(2, 0, 1\) of one"):
        trainer(tmp_path / "run", data=data, shape=shape)
    right = x.permute(0, 3, 1, 2)
    assert trainer(tmp_path / "run", data={"x": right}, shape=right.shape[1:]).source.tensors["x"].is_image


@pytest.mark.parametrize("shape", [(1, 16, 3), (3, 16, 4), (3, 3, 3), (4, 4, 4)])
def test_narrow_images_are_not_taken_for_images_with_the_channels_last(tmp_path, shape):
    trainer(tmp_path, data={"x": torch.zeros(8, *shape, dtype=torch.uint8)}, shape=shape)


@pytest.mark.filterwarnings("ignore:generator. forward.latent. ends in a tanh:UserWarning")
@pytest.mark.parametrize(
    ("low", "high", "warned", "reason"),
    [
        (-1, 1, False, None),
        (0, 1, True, None),
        (0, 255, False, "x is from 0 to 255, and images are scored in [-1, 1] or as uint8"),
        (-3, 3, False, "x is from -3 to 3, and images are scored in [-1, 1] or as uint8"),
    ],
)
def test_the_range_of_images_is_said_where_it_matters(tmp_path, capsys, low, high, warned, reason):
    x = floats(low, high)["x"]
    x[0, 0, 0, :2] = torch.tensor([low, high])
    trainer(tmp_path, data={"x": x}).run()
    out, err = capsys.readouterr()
    assert err.count("warning: x is in [0, 1], and images are shown and scored in [-1, 1]") == warned
    assert (f"score     off (evaluation.metrics=null: {reason})" in out) == (reason is not None)


@pytest.mark.parametrize("data", [None, floats(0, 1, (6,)), floats(0, 1, (4, 16, 16)), {"x": torch.zeros(8, *SHAPE)}])
def test_samples_that_are_no_images_in_floats_get_no_line_about_their_range(tmp_path, capsys, data):
    """Bytes, rows, latents, and images that are all 0."""
    shape = SHAPE if data is None else tuple(data["x"].shape[1:])
    trainer(tmp_path, data=data, shape=shape, evaluation__features=None).run()
    out, err = capsys.readouterr()
    assert "is in [0, 1]" not in err and "score     off (evaluation." in out


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
def test_labels_of_one_column_are_classes_and_balanced(tmp_path, shape):
    label_N = (torch.arange(60) < 50).long()  # 10 of class 0
    run = trainer(
        tmp_path, _ByLabel, {"x": images()["image"], "label": label_N.reshape(shape)}, data__balance="classes"
    )
    run = run.run()
    assert run.records("score")[-1]["protocol"]["extractor_task"] == "classes"
    batch = run.trainer.source.fetch(ClassOrder(label_N.numpy(), 0).at(np.arange(4)))
    assert batch["label"].flatten().sort().values.tolist() == [0, 0, 1, 1]
    assert run.sample(3, labels=[1, 0]) is not None


@pytest.mark.parametrize(("key", "value"), [("data__label_distribution", "uniform"), ("data__balance", "classes")])
def test_distributions_of_labels_that_the_data_cannot_have_are_refused(tmp_path, key, value):
    with pytest.raises(pg.ConfigError, match=key.replace("__", r"\.")):
        trainer(tmp_path, **{key: value}).run()


class _ByLabel(Maker):
    def __init__(self, shape=SHAPE):
        super().__init__(shape, 8)
        self.latent = 7

    def forward(self, latent, label):
        return super().forward(torch.cat([latent, label.reshape(-1, 1).float()], 1))


def labelled(*labels):
    x = torch.arange(len(labels), dtype=torch.uint8)[:, None, None, None].expand(-1, *SHAPE)
    return TensorSource({"x": x.contiguous(), "label": torch.tensor(labels)}, Padding())


@pytest.mark.parametrize(
    ("trained", "held_out", "left"),
    [
        ((0, 1, 2), (0, 3, 1, 3), [0, 1]),
        ((0, 2, 2), (1, 2, 0), [2, 0]),  # a class between others
        ((0, 1, 1), (-1, 0, 7000), [0]),
        ((0, 1, 2), (2, 1), [2, 1]),
    ],
)
def test_held_out_samples_are_those_of_trained_classes(trained, held_out, left):
    train = labelled(*trained)
    for _ in range(2):  # runs of one program
        real, images, samples = tensor_images.both_splits(train, labelled(*held_out), "x")
        assert images.row_labels().tolist() == samples.row_labels().tolist() == left
        assert images.fetch(np.arange(len(images)))["label"].tolist() == left
        assert samples.fetch(np.arange(len(left)))["label"].tolist() == left
        assert images.class_names == real.class_names == tuple(map(str, range(max(trained) + 1)))
    assert sum("classes without training images" in text for text in train.notices) == (len(left) < len(held_out))


def test_held_out_samples_without_a_trained_class_are_scored_without_labels():
    train = labelled(0, 1, 2)
    real, images, samples = tensor_images.both_splits(train, labelled(3, 4), "x")
    assert real.class_names == images.class_names == () and len(images) == len(samples) == 2
    assert [text.startswith("held_out: ") for text in train.notices] == [True]


def test_labels_that_are_no_classes_stay():
    for trained, held_out in (((1, 2), (3, 4)), ((0, 1.5), (0, 3.5))):
        train = labelled(*trained)
        real, images, samples = tensor_images.both_splits(train, labelled(*held_out), "x")
        assert real.class_names == images.class_names == () == train.notices and len(images) == len(samples) == 2


def test_a_score_has_no_class_that_is_not_trained(tmp_path, capsys):
    labels = torch.arange(60)
    data, held_out = ({"x": images()["image"], "label": labels % count} for count in (3, 4))
    run = trainer(tmp_path, Labelled, data, held_out=held_out).run()
    assert "label_accuracy" in run.score
    assert run.records("score")[-1]["protocol"]["real"]["num_images"] == 30
    assert capsys.readouterr().err.count("left out, with 15 of the held-out images: '3'") == 1
