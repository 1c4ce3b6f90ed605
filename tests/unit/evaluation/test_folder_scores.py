"""`paragan score` of two folders, beside scipy and the estimators written out, on the same features."""

import json

import numpy as np
import pytest
import scipy.linalg
import torch
from PIL import Image

from paragan.cli.main import main

COUNT = 60


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two folders of images of several sizes."""
    root = tmp_path_factory.mktemp("folders")
    for name, seed, top in (("generated", 0, 200), ("real", 1, 256)):
        (root / name / "sub").mkdir(parents=True)
        draws = np.random.default_rng(seed)
        for number in range(COUNT):
            side = (28, 32, 40)[number % 3]
            place = root / name / ("sub" if number % 2 else "")
            Image.fromarray(draws.integers(0, top, (side, 28, 3), np.uint8)).save(place / f"{number}.png")
    return root


@pytest.fixture
def features(transformer_file):
    return json.dumps({"name": "exported", "weights": str(transformer_file[1]), "size": 28})


def by_hand(folder, network):
    """Features of each image alone, resized as `ImageInput` does."""
    mean, std = (torch.tensor(values).reshape(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    rows = []
    for path in sorted(folder.rglob("*.png")):
        with Image.open(path) as image:
            x = torch.tensor(np.asarray(image)).permute(2, 0, 1)[None].float() / 255
        x = torch.nn.functional.interpolate(x, (28, 28), mode="bicubic", antialias=True).clamp(0, 1)
        with torch.no_grad():
            rows.append(network((x - mean) / std)["cls"])
    return torch.cat(rows).double().numpy()


def frechet(a, b):
    root = scipy.linalg.sqrtm(np.cov(a.T) @ np.cov(b.T))
    return np.square(a.mean(0) - b.mean(0)).sum() + np.trace(np.cov(a.T) + np.cov(b.T) - 2 * root.real)


def kernel_distance(a, b):
    def kernel(x, y):
        return (x @ y.T / x.shape[1] + 1) ** 3

    within = [(kernel(x, x).sum() - np.trace(kernel(x, x))) / (len(x) * (len(x) - 1)) for x in (a, b)]
    return sum(within) - 2 * kernel(a, b).mean()


def score(capsys, *words):
    assert main(["score", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_score_of_two_folders_equals_scipy_on_the_same_features(folders, features, transformer_file, capsys):
    result = score(capsys, folders / "generated", folders / "real", "--features", features)
    a, b = (by_hand(folders / name, transformer_file[0]) for name in ("generated", "real"))
    assert result["images"] == [COUNT, COUNT]
    assert result["metrics"]["fd"] == pytest.approx(frechet(a, b), rel=1e-4)  # features are float32
    assert result["metrics"]["kid"] == pytest.approx(kernel_distance(a, b), rel=1e-4, abs=1e-6)
    assert set(result["metrics"]) == {"fd", "kid", "precision", "recall", "density", "coverage"}


def test_equal_folders_have_distance_zero(folders, features, capsys):
    metrics = score(capsys, folders / "real", folders / "real", "--features", features)["metrics"]
    assert metrics["fd"] == pytest.approx(0, abs=1e-6)
    assert metrics["precision"] == metrics["recall"] == metrics["coverage"] == 1


def test_saved_statistics_give_the_same_fd_and_are_those_of_the_field(
    folders, features, transformer_file, tmp_path, capsys
):
    whole = score(
        capsys, folders / "generated", folders / "real", "--features", features, "--save-stats", tmp_path / "real.npz"
    )
    stored = score(capsys, folders / "generated", tmp_path / "real.npz", "--features", features)
    assert stored["metrics"]["fd"] == whole["metrics"]["fd"]
    assert isinstance(stored["metrics"]["kid"], str)
    with np.load(tmp_path / "real.npz") as arrays:
        expected = by_hand(folders / "real", transformer_file[0])
        np.testing.assert_allclose(arrays["mu"], expected.mean(0), atol=1e-4)
        np.testing.assert_allclose(arrays["sigma"], np.cov(expected.T), atol=1e-3)


def test_statistics_of_other_programs_are_read(folders, features, tmp_path, capsys):
    np.savez(tmp_path / "theirs.npz", mu=np.zeros(32), sigma=np.eye(32, dtype=np.float32))
    metrics = score(capsys, folders / "real", tmp_path / "theirs.npz", "--features", features)["metrics"]
    assert metrics["fd"] > 0


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"mu": np.zeros(5), "sigma": np.eye(5)}, "same extractor"),
        ({"mu": np.zeros(5), "sigma": np.eye(4)}, "sigma"),
        ({"mu": np.zeros((2, 5)), "sigma": np.eye(5)}, "mu"),
        ({"mu": np.array([{}]), "sigma": np.eye(5)}, "objects"),
    ],
)
def test_statistics_that_do_not_fit_are_one_line(folders, features, tmp_path, capsys, arrays, expected):
    np.savez(tmp_path / "bad.npz", **arrays)
    assert main(["score", str(folders / "real"), str(tmp_path / "bad.npz"), "--features", features]) == 2
    message = capsys.readouterr().err.strip()
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--features", "judge"], "belongs to a run"),
        (["--features", "nonsense"], "nonsense"),
        (["--features", "cifar10"], "3x32x32"),
        (["--metrics", "fd,label_accuracy"], "label_accuracy"),
        (["--metrics", "nonsense"], "nonsense"),
    ],
)
def test_what_cannot_be_compared_is_one_line(folders, capsys, words, expected):
    assert main(["score", str(folders / "generated"), str(folders / "real"), *words]) == 2
    message = capsys.readouterr().err.strip()
    assert expected in message
    assert "\n" not in message


def test_damaged_image_is_named(folders, features, tmp_path, capsys):
    Image.effect_noise((30, 30), 50).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:300])
    assert main(["score", str(tmp_path), str(folders / "real"), "--features", features]) == 2
    assert "bad.png" in capsys.readouterr().err
