"""`paragan data check`: what it finds in a folder or zip file, what it advises, and how it ends."""

import json
import shutil

import numpy as np
import pytest
import typer
from PIL import Image

from paragan.cli import data as verb
from paragan.core.errors import DataError
from paragan.datasets.base.open_images import open_encoded_images
from paragan.datasets.preparation.dataset_check import check_dataset

NOISE = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path):
    """Thirty cats and two dogs of 20x20; nothing wrong with them."""
    root = tmp_path / "mine"
    for number in range(32):
        put(root / ("dogs" if number < 2 else "cats") / f"{number:02d}.png")
    return root


def put(path, width=20, height=20, image=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = image or Image.fromarray(NOISE.integers(0, 256, (height, width, 3), np.uint8))
    image.save(path)
    return path


def run(capsys, *words):
    """Exit code, what it printed, and what it said beside."""
    code = typer.main.get_command(verb.app)(["check", *map(str, words)], standalone_mode=False) or 0
    output = capsys.readouterr()
    return code, output.out, output.err


def advice(found, word):
    return [line for line in found.advice if word in line]


def test_a_good_folder_ends_with_the_command_to_train(folder, capsys):
    code, out, _ = run(capsys, folder)
    assert code == 0
    assert "32 images" in out
    assert "20 to 20 px, median 20; 0 not square" in out
    assert "2: cats 30, dogs 2" in out
    assert f"To train: paragan train own data.path={folder} data.size=20" in out


def test_damaged_files_are_named_and_end_with_2(folder, capsys):
    for number in range(12):
        (folder / "cats" / f"bad-{number:02d}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    code, out, _ = run(capsys, folder)
    assert code == 2
    assert "damaged       12" in out and "held out, damaged ones included" in out
    assert f"{folder}/cats/bad-09.png: not an image" in out
    assert "bad-10.png" not in out and "and 2 more" in out
    assert "12 images are damaged" in out


@pytest.mark.parametrize("case", ["NaN in an array", "size of the model", "damaged=stop"])
def test_what_training_refuses_ends_with_2_and_its_words_instead_of_a_command(tmp_path, folder, capsys, case):
    if case == "NaN in an array":
        images = NOISE.random((20, 8, 8, 3)).astype(np.float32)
        images[7, 0, 0, 0] = np.nan
        np.savez(tmp_path / "nan.npz", images=images)
        words, said = [tmp_path / "nan.npz"], "not finite"
    elif case == "size of the model":
        words, said = [folder, "data.size=18"], "data.size=18 is not a multiple of 4"
    else:
        (folder / "cats" / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        words, said = [folder, "data.damaged=stop"], "bad.png: not an image"
    code, out, _ = run(capsys, *words)
    assert code == 2 and "To train" not in out
    assert said in out.splitlines()[-1]


def test_json_says_the_same(folder, capsys):
    (folder / "cats" / "bad.png").touch()
    code, out, _ = run(capsys, folder, "--json")
    found = json.loads(out)
    assert code == 2
    assert found["images"] == 33 and len(found["damaged"]) == 1
    assert found["classes"] == {"cats": 31, "dogs": 2}
    assert found["sides"] == [20, 20, 20]


def test_sizes_and_shapes(folder):
    put(folder / "cats" / "a.png", 8, 300)
    put(folder / "cats" / "b.png", 500, 400)
    found = check_dataset(str(folder))
    assert found.sides == (8, 20, 400)
    assert found.not_square == 2
    assert (found.size, found.num_smaller) == (20, 1)
    assert advice(found, "1 image is smaller than 20 px") and advice(found, "data.crop=squash")


def test_check_uses_the_requested_size(folder):
    found = check_dataset(str(folder), size=64)
    assert found.num_smaller == 32
    assert "data.size=64" in found.command
    with pytest.raises(DataError, match=r"--size: .* HEIGHTxWIDTH"):
        check_dataset(str(folder), size="20*30")


def test_kinds_are_counted(tmp_path):
    deep = Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8))
    modes = {"colour": "RGB", "grey": "L", "alpha": "RGBA"}
    for kind, mode in modes.items():
        put(tmp_path / f"{kind}.png", image=Image.new(mode, (8, 8)))
    put(tmp_path / "cmyk.jpg", image=Image.new("CMYK", (8, 8)))
    put(tmp_path / "deep.png", image=deep)
    assert check_dataset(str(tmp_path)).kinds == {"colour": 2, **dict.fromkeys(("grey", "alpha", "16-bit"), 1)}


def test_duplicates_in_different_formats_are_found(folder):
    image = Image.open(folder / "dogs" / "00.png")
    image.save(folder / "dogs" / "copy.bmp")
    found = check_dataset(str(folder))
    assert found.duplicates == [("dogs/copy.bmp", "dogs/00.png")]
    assert advice(found, "equal to others")


def test_check_advises_on_uneven_classes(folder):
    assert "30 images of 'cats', 2 of 'dogs'" in advice(check_dataset(str(folder)), "imbalanced")[0]
    for number in range(2):
        put(folder / "dogs" / f"more-{number}.png")
    assert not advice(check_dataset(str(folder)), "imbalanced")


def test_few_images_suggest_augmentation(tmp_path, monkeypatch, folder):
    assert advice(check_dataset(str(folder)), "only 32 images")
    monkeypatch.setattr("paragan.datasets.preparation.dataset_report.FEW_IMAGES", 32)
    found = check_dataset(str(folder))
    assert not advice(found, "only") and "augment" not in found.command


def test_check_warns_of_images_next_to_class_folders(folder):
    put(folder / "stray.png")
    with pytest.raises(DataError, match=r"'stray\.png' is next to 2 class folders"):
        check_dataset(
            str(folder), progress=lambda done, total: pytest.fail("decoded images before the check of the paths")
        )


def test_names_cannot_move_the_cursor(folder, capsys):
    (folder / "cats" / "a\x1b[2J\n.png").touch()
    _, out, _ = run(capsys, folder)
    assert "a?[2J?.png" in out and "\x1b" not in out


def test_check_pictures_that_hold_pairs_are_trained_as_pairs(tmp_path, capsys):
    """`train own` crops the middle of them, with the seam of both halves."""
    for n in range(10):
        put(tmp_path / f"{n}.png", 64, 32)
    found = check_dataset(str(tmp_path))
    assert found.command.split()[1:3] == ["train", "pix2pix-facades"] and f"data.path={tmp_path}" in found.command
    assert advice(found, "pairs") and not advice(found, "centre-cropped")
    for n in range(3):
        put(tmp_path / f"square{n}.png")
    found = check_dataset(str(tmp_path))
    assert found.command.split()[1:3] == ["train", "own"] and advice(found, "centre-cropped")


def test_check_says_that_generated_images_are_opaque(tmp_path):
    for n in range(4):
        put(tmp_path / f"{n}.png", image=Image.new("RGBA", (20, 20), (n, 0, 0, 128)))
    assert advice(check_dataset(str(tmp_path)), "opaque")


@pytest.mark.parametrize("name", ["photos.tar", "photos.zip", "photos.tar.gz", "photos.tgz"])
def test_folder_that_holds_an_archive_only_names_it(tmp_path, name):
    (tmp_path / name).write_bytes(b"an archive")
    (tmp_path / "README").write_text("about")
    with pytest.raises(DataError, match=f"pass the archive: data.path={tmp_path / name}"):
        check_dataset(str(tmp_path))


def test_check_prints_splits_values_formats_and_what_is_not_read(folder, capsys):
    for name in ("notes.txt", "more.zip", "x.txt"):
        (folder / name).touch()
    put(folder / "test" / "1.png")
    code, out, _ = run(capsys, folder)
    found = check_dataset(str(folder))
    train, held_out = found.splits["train"], found.splits["held_out"]
    assert code == 0 and train + held_out == 32 and f"{train} train, {held_out} held out" in out
    assert found.ignored == {"images in test/": 1, ".txt": 2, ".zip": 1} and "2 .txt, 1 .zip" in out
    assert found.formats == {"png": 32} and found.ranges["8-bit"] == (0, 255) and "8-bit 0 to 255" in out
    assert f"trains on {train}, holds out {held_out}" in out.splitlines()[0]


@pytest.mark.parametrize(("high", "is_said"), [(4095, True), (20_000, False)])
def test_check_says_that_a_set_uses_little_of_its_range(tmp_path, high, is_said):
    for number in range(3):
        values = np.linspace(number, high, 64).astype(np.uint16).reshape(8, 8)
        put(tmp_path / f"{number}.png", image=Image.fromarray(values))
    found = check_dataset(str(tmp_path))
    assert found.ranges == {"16-bit": (0, high)}
    assert any("nearly even" in line for line in found.warnings) == is_said


@pytest.mark.parametrize("name", ["x.npz", "x.npy"])
def test_check_reads_arrays_and_prints_their_data_set(tmp_path, capsys, name):
    images = NOISE.integers(0, 200, (40, 12, 12, 3), np.uint8)
    path = tmp_path / name
    np.save(path, images) if name == "x.npy" else np.savez(path, images=images, labels=np.arange(40) % 4)
    code, out, _ = run(capsys, path)
    found = check_dataset(str(path))
    assert code == 0 and f"train own data.name=npz data.path={path}" in out
    assert (found.images, found.splits["train"] + found.splits["held_out"]) == (40, 40)
    assert found.classes == ({} if name == "x.npy" else dict.fromkeys("0123", 10))
    assert found.sides == (12, 12, 12) and found.ranges["8-bit"][1] == images.max()
    with pytest.raises(DataError, match=r"data\.name=npz"):
        open_encoded_images(str(path))


def test_check_names_the_recipe_for_large_photos_and_classes_of_one_image(tmp_path):
    for number in range(4):
        put(tmp_path / ("one" if number == 0 else "many") / f"{number}.png", 140, 140)
    found = check_dataset(str(tmp_path))
    assert advice(found, "own-128") and advice(found, "'one'")
    for path in tmp_path.rglob("*.png"):
        put(path, 300, 300)
    assert advice(check_dataset(str(tmp_path)), "own-256")
    for path in tmp_path.rglob("*.png"):
        put(path, 100, 100)
    put(tmp_path / "one" / "5.png", 100, 100)
    found = check_dataset(str(tmp_path))
    assert not advice(found, "own-128") and not advice(found, "'one'")


def test_check_reads_what_prepare_reads(tmp_path, folder):
    for kind in ("zip", "tar", "bztar"):
        packed = shutil.make_archive(str(tmp_path / kind), kind, folder)
        found = check_dataset(packed)
        assert (found.images, found.classes) == (32, {"cats": 30, "dogs": 2})


def test_check_reads_a_folder_of_sound(tmp_path, capsys):
    soundfile = pytest.importorskip("soundfile", reason="soundfile is not installed")
    pytest.importorskip("soxr", reason="soxr is not installed")
    for number in range(3):
        soundfile.write(tmp_path / f"{number}.wav", NOISE.uniform(-1, 1, 16_000), 16_000)
    code, out, _ = run(capsys, tmp_path)
    assert code == 0 and f"train vocoder data.path={tmp_path}" in out
    assert "2 train, 1 held out" in out and "16000 Hz" in out and "px" not in out


def test_a_folder_without_images_says_what_is_there(tmp_path):
    for name in ("a.txt", "b.txt", "c.bin"):
        (tmp_path / name).write_text("text")
    with pytest.raises(DataError, match=r"no images .*ignored: 2 \.txt, 1 \.bin"):
        check_dataset(str(tmp_path))


@pytest.mark.parametrize(
    ("shape", "dtype", "kind", "limits"),
    [
        ((40, 8, 8, 5), np.uint8, "5-band", None),
        ((40, 2, 8, 8), np.uint8, "2-band", None),
        ((40, 8, 8, 4), np.uint16, "16-bit", "[0,199]"),
        ((40, 8, 8), np.float32, "32-bit", "[0,199]"),
        ((40, 8, 8, 1), np.int16, "16-bit", "[-9,199]"),
    ],
)
def test_check_reads_all_arrays_that_training_reads(tmp_path, shape, dtype, kind, limits):
    low = -9 if dtype == np.int16 else 0
    images = NOISE.integers(low, 200, shape).astype(dtype)
    images[0].flat[:2] = low, 199
    np.save(tmp_path / "x.npy", images)
    found = check_dataset(str(tmp_path / "x.npy"))
    assert (found.kinds, found.formats, found.damaged) == ({kind: 40}, {"npy": 40}, [])
    assert not advice(found, "transparent") and not any("bands" in line for line in found.warnings)
    assert (f"data.range={limits}" in found.command) if limits else ("data.range" not in found.command)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_check_counts_values_that_are_not_finite_as_damage(tmp_path, value):
    images = NOISE.random((5, 8, 8)).astype(np.float32)
    images[2, 3, 3] = value
    np.savez(tmp_path / "x.npz", images=images)
    (line,) = check_dataset(str(tmp_path / "x.npz")).damaged
    assert "image 2" in line and "not finite" in line
