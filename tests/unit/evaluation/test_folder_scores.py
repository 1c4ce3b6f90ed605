"""`paragan score` of two folders, beside scipy and the estimators written out, on the same features."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from paragan.cli.main import main
from paragan.core.metric import SampleFeatures
from paragan.evaluation import folder_scores
from paragan.metrics.fd import FeatureMoments, frechet_distance

pytestmark = pytest.mark.usefixtures("programs_read_once")

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
    from scipy.linalg import sqrtm  # as in test_fd.py

    root = sqrtm(np.cov(a.T) @ np.cov(b.T))
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
    assert stored["metrics"]["kid"] is None
    assert "statistics" in stored["missing"]["kid"]
    with np.load(tmp_path / "real.npz") as arrays:
        expected = by_hand(folders / "real", transformer_file[0])
        np.testing.assert_allclose(arrays["mu"], expected.mean(0), atol=1e-4)
        np.testing.assert_allclose(arrays["sigma"], np.cov(expected.T), atol=1e-3)


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "f4", "f2", "g", "i8", ">i4", "u2"])
def test_statistics_of_any_precision_and_byte_order_are_read(folders, features, tmp_path, capsys, dtype):
    for name, kind in (("any", dtype), ("usual", "f8")):
        np.savez(tmp_path / f"{name}.npz", mu=np.arange(32).astype(kind), sigma=np.eye(32).astype(kind))
    values = [
        score(capsys, folders / "real", tmp_path / f"{name}.npz", "--features", features, "--metrics", "fd")["metrics"]
        for name in ("any", "usual")
    ]
    assert values[0] == values[1]
    assert values[0]["fd"] > 1


@pytest.mark.parametrize("path", ["stats.txt", "missing/stats.npz", "folder.npz", "stats"])
def test_statistics_that_could_not_be_saved_or_read_are_refused_at_once(folders, tmp_path, capsys, path):
    (tmp_path / "folder.npz").mkdir()
    words = [str(folders / "generated"), str(folders / "real"), "--save-stats", str(tmp_path / path)]
    assert main(["score", *words, "--features", "nonsense"]) == 2  # before the extractor is looked for
    assert "--save-stats" in capsys.readouterr().err


def test_distance_of_what_is_not_a_number_is_not_zero():
    mean_F, nan_F = torch.zeros(3), torch.full((3,), float("nan"))
    assert np.isnan(frechet_distance(nan_F, torch.eye(3), mean_F, torch.eye(3)))
    assert np.isnan(frechet_distance(mean_F, torch.eye(3), nan_F, torch.eye(3)))
    assert frechet_distance(mean_F, torch.eye(3), mean_F, torch.eye(3)) == pytest.approx(0, abs=1e-6)


def image_set(features_BF):
    mean_F, covariance_FF = FeatureMoments.of(features_BF).mean_and_covariance()
    features = SampleFeatures(features_BF=features_BF)
    return folder_scores.ImageSet(name="set", mean_F=mean_F, covariance_FF=covariance_FF, features=features)


@pytest.mark.parametrize(("count", "width", "centre"), [(400, 64, 0.0), (3000, 16, 5.0), (200, 48, -30.0)])
def test_metrics_of_equal_features_equal_scipy_to_rounding(count, width, centre):
    draws = torch.Generator().manual_seed(count)
    a, b = (torch.randn(n, width, generator=draws) * scale + centre for n, scale in ((count, 1.0), (count + 7, 1.2)))
    values = folder_scores.compare(image_set(a), image_set(b), ["fd", "kid"])
    a, b = a.double().numpy(), b.double().numpy()
    assert values["fd"] == pytest.approx(frechet(a, b), rel=1e-6)
    assert values["kid"] == pytest.approx(kernel_distance(a, b), rel=1e-9, abs=1e-9)


def test_fewer_images_than_a_metric_needs_are_counted(folders, features, tmp_path, capsys):
    for number in range(3):
        Image.effect_noise((28, 28), 50 + number).save(tmp_path / f"{number}.png")
    metrics, missing = (
        score(capsys, tmp_path, folders / "real", "--features", features)[k] for k in ("metrics", "missing")
    )
    assert isinstance(metrics["fd"], float)
    assert isinstance(metrics["kid"], float)
    assert missing == {
        **dict.fromkeys(("precision", "recall"), "needs at least 4 generated and as many real images"),
        **dict.fromkeys(("density", "coverage"), "needs at least 6 generated and as many real images"),
    }
    assert {name for name, value in metrics.items() if value is None} == missing.keys()


def test_images_that_are_not_compared_are_named(folders, features, tmp_path, capsys):
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        for number in range(4):
            Image.effect_noise((28, 28), 50 + number).save(tmp_path / folder / f"{number}.png")
    assert main(["score", str(tmp_path), str(folders / "real"), "--features", features, "--metrics", "fd"]) == 0
    captured = capsys.readouterr()
    assert "4 images" in captured.out
    assert "4 images in masks/" in captured.err


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_array_of_images_has_the_scores_of_their_files(folders, features, tmp_path, capsys, channels):
    pixels = np.random.default_rng(channels).integers(0, 256, (20, 28, 28, channels), np.uint8)
    (tmp_path / "files").mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image[..., 0] if channels == 1 else image).save(tmp_path / "files" / f"{number:03}.png")
    np.savez(tmp_path / "array.npz", arr_0=pixels, arr_1=np.zeros(20, np.int64))
    values = [
        score(capsys, tmp_path / name, folders / "real", "--features", features) for name in ("files", "array.npz")
    ]
    assert values[0]["images"] == values[1]["images"] == [20, COUNT]
    assert values[1]["metrics"] == pytest.approx(values[0]["metrics"], rel=1e-5)


def test_statistics_of_one_network_are_refused_by_another(folders, features, tmp_path, capsys):
    saved = tmp_path / "real.npz"
    score(capsys, folders / "real", folders / "real", "--features", features, "--save-stats", saved, "--metrics", "fd")
    small = tmp_path / "small"
    small.mkdir()
    for number in range(4):
        Image.effect_noise((32, 32), 50 + number).convert("RGB").save(small / f"{number}.png")
    assert main(["score", str(small), str(saved), "--features", "cifar10", "--metrics", "fd"]) == 2
    assert "cifar10" in capsys.readouterr().err


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
        ({"mu": np.full(32, np.nan), "sigma": np.eye(32)}, "mu"),
        ({"mu": np.full(32, np.inf), "sigma": np.eye(32)}, "mu"),
        ({"mu": np.zeros(32), "sigma": np.full((32, 32), np.nan)}, "sigma"),
        ({"mu": np.zeros(32), "sigma": -np.eye(32)}, "sigma"),
        ({"mu": np.zeros(32), "sigma": np.triu(np.ones((32, 32)))}, "sigma"),
        ({"mu": np.array(1.0), "sigma": np.eye(1)}, "mu ()"),
        ({"mu": np.zeros(1), "sigma": np.array(1.0)}, "sigma ()"),
        ({"mu": np.zeros(32), "sigma": np.full((32, 32), 1e300)}, "sigma"),
        ({"mu": np.full(32, -1e300), "sigma": np.eye(32)}, "mu"),
        ({"mu": np.zeros(32), "sigma": np.full((32, 32), 1e300, np.longdouble)}, "sigma"),
        ({"mu": np.zeros(32, complex), "sigma": np.eye(32)}, "complex128"),
        ({"mu": np.zeros(32, bool), "sigma": np.eye(32)}, "bool"),
        ({"mu": np.array(["a"] * 32), "sigma": np.eye(32)}, "mu"),
        ({"mu": np.zeros(32, "M8[s]"), "sigma": np.eye(32)}, "datetime64"),
        ({"mu": np.zeros(0), "sigma": np.zeros((0, 0))}, "mu"),
        ({"mu": np.zeros(32)}, "mu and sigma"),
        ({"images": np.zeros((3, 8, 8, 3), np.uint8)}, "arr_0"),
        ({"arr_0": np.zeros((3, 8, 8, 3), np.float32)}, "float32"),
        ({"arr_0": np.zeros((3, 3, 8, 8), np.uint8)}, "(3, 3, 8, 8)"),
        ({"arr_0": np.zeros((1, 8, 8, 3), np.uint8)}, "two or more"),
        ({"mu": np.zeros(32), "sigma": np.eye(32), "extractor": np.array("exported 0123")}, "exported 0123"),
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
        (["--features", "judge"], "needs the images of a run"),
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


@pytest.mark.parametrize("words", [["--metrics", "kid"], ["--metrics", "fd,coverage", "--json"]])
def test_metric_that_is_named_and_cannot_be_computed_is_an_error(folders, features, tmp_path, capsys, words):
    np.savez(tmp_path / "s.npz", mu=np.zeros(32), sigma=np.eye(32))
    command = ["score", str(folders / "real"), str(tmp_path / "s.npz"), "--features", features]
    assert main([*command, *words]) == 2
    assert "--metrics: " in capsys.readouterr().err
    assert main(command) == 0
    assert "statistics" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing", "REAL"], "GENERATED: no folder 'missing'"),
        (["REAL", "missing"], "REAL: no folder 'missing'"),
        (["REAL", "REAL", "--metrics", "nonsense"], "no metric 'nonsense'; choose from fd, kid, precision,"),
        (["REAL", "REAL", "--metrics", "ssim"], "ssim cannot be computed from the features of two folders; choose"),
    ],
)
def test_messages_of_score_name_what_exists(folders, features, capsys, words, message):
    words = [str(folders / "real") if word == "REAL" else word for word in words]
    assert main(["score", *words, "--features", features]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "score=" not in error and "REAL=" not in error and "GENERATED=" not in error


@pytest.mark.parametrize(("number", "is_few"), [(8, True), (64, True), (65, False)])
def test_fewer_images_than_features_are_a_warning(number, is_few):
    images = folder_scores._image_set("photos", torch.randn(number, 64), {})
    assert any("64 features" in line for line in images.warnings()) == is_few
