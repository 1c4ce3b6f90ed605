"""Sources of `paragan data prepare`: archives, WebDataset, arrays, Parquet and Hugging Face folders."""

import json
import sys
import tarfile

import pytest

from paragan.datasets.base.open_images import open_encoded_images
from tests.data_refusals import refusal
from tests.image_folders import add_member
from tests.prepared_shards import contents, image_folder, prepared


@pytest.fixture
def images(tmp_path):
    return image_folder(tmp_path / "images")


def files_of(images):
    return [path.read_bytes() for path in sorted(images.rglob("*.*"))]


def stored(opened):
    return [opened.read(row) for row in range(len(opened))]


def labels_of(opened):
    return opened.index["label"].tolist()


def web_dataset(path, images, labels, first=0):
    """Keys in no order, a label before or after its image, a second image and other files per sample."""
    with tarfile.open(path, "w") as archive:
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            key = f"./a/{(number * 7 + first) % 100:03d}"
            parts = [(f"{key}.jpg", image), (f"{key}.cls", b"%d\n" % label), (f"{key}.mask.png", images[0])]
            for name, content in [*parts[:: 1 if number % 2 else -1], (f"{key}.json", b"{}")]:
                add_member(archive, name, content)


def test_web_dataset_gives_images_and_labels_in_its_order(tmp_path, images):
    data = files_of(images)[:8]
    web_dataset(tmp_path / "w.tar", data, [2, 0, 1, 1, 0, 2, 2, 0])
    opened = prepared(tmp_path / "w.tar", tmp_path / "out")
    assert stored(opened) == data
    assert labels_of(opened) == [2, 0, 1, 1, 0, 2, 2, 0]
    assert opened.description.class_names == ("0", "1", "2")


def test_folder_of_tar_files_is_read_in_their_order(tmp_path, images):
    data = files_of(images)[:10]
    (tmp_path / "w").mkdir()
    web_dataset(tmp_path / "w" / "0.tar", data[:6], range(6))
    web_dataset(tmp_path / "w" / "1.tar", data[6:], range(4))
    opened = prepared(tmp_path / "w", tmp_path / "out")
    assert stored(opened) == data
    assert labels_of(opened) == [*range(6), *range(4)]
    assert open_encoded_images(str(tmp_path / "w")).where(7) == f"{tmp_path}/w/1.tar: a/007.jpg"


def test_shards_of_other_programs_may_have_no_labels(tmp_path, images):
    data = files_of(images)[:4]
    (tmp_path / "w").mkdir()
    for number in range(2):
        with tarfile.open(tmp_path / "w" / f"{number}.tar", "w") as archive:
            for row in range(2):
                add_member(archive, f"{row}.png", data[2 * number + row])
    opened = prepared(tmp_path / "w", tmp_path / "out")
    assert stored(opened) == data
    assert labels_of(opened) == [-1] * 4
    assert opened.description.class_names == ()


@pytest.mark.parametrize(
    ("label", "message"),
    [(b"\x89P\0\1", "a/014.cls"), (b" \n", "014.png"), (None, "014.png")],
)
def test_web_dataset_with_an_invalid_label_is_refused(tmp_path, images, label, message):
    data = files_of(images)[:2]
    with tarfile.open(tmp_path / "w.tar", "w") as archive:
        add_member(archive, "a/007.png", data[0])
        add_member(archive, "a/007.cls", b"0")
        add_member(archive, "a/014.png", data[1])
        if label is not None:
            add_member(archive, "a/014.cls", label)
    assert message in refusal(lambda: open_encoded_images(str(tmp_path / "w.tar")))


@pytest.mark.parametrize("length", [-4000, 700, 100])
def test_cut_tar_file_is_refused(tmp_path, images, length):
    path = tmp_path / "w.tar"
    web_dataset(path, files_of(images), [0] * 23)
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content[:length])
    assert str(path) in refusal(lambda: prepared(path, tmp_path / "out"))


def table(images, label, names=None):
    import pyarrow

    data = files_of(images)
    image = [{"bytes": content, "path": f"{row}.png"} for row, content in enumerate(data)]
    rows = pyarrow.table({"id": list(range(len(data))), "image": image, "label": [label(r) for r in range(len(data))]})
    if names is None:
        return rows
    features = {"label": {"names": names, "_type": "ClassLabel"}}
    return rows.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def test_parquet_gives_its_bytes_and_class_names(tmp_path, images):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    parquet.write_table(table(images, lambda r: r % 3, ["a", "b", "c"]), tmp_path / "x.parquet", row_group_size=4)
    opened = prepared(tmp_path / "x.parquet", tmp_path / "out")
    assert stored(opened) == files_of(images)
    assert labels_of(opened) == [row % 3 for row in range(23)]
    assert opened.description.class_names == ("a", "b", "c")
    in_place = open_encoded_images(str(tmp_path / "x.parquet"))
    assert in_place.read([22, 0, 7, 8]) == [files_of(images)[row] for row in (22, 0, 7, 8)]
    prepared(tmp_path / "x.parquet", tmp_path / "two")
    assert contents(tmp_path / "out") == contents(tmp_path / "two")


def test_parquet_with_labels_of_text_and_splits(tmp_path, images):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    (tmp_path / "hub" / "data").mkdir(parents=True)
    for name in ("validation-00000-of-00001", "train-00001-of-00002", "train-00000-of-00002"):
        rows = table(images, lambda r: ("dog", "cat")[r % 2])
        parquet.write_table(rows, tmp_path / "hub" / "data" / f"{name}.parquet")
    opened = prepared(tmp_path / "hub", tmp_path / "out")
    assert opened.description.num_train == 46
    assert stored(opened) == files_of(images) * 3
    assert opened.description.class_names == ("cat", "dog")
    assert labels_of(opened)[:3] == [1, 0, 1]


def test_hugging_face_folder_gives_its_bytes(tmp_path, images):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    root = tmp_path / "saved"
    for split in ("train", "test"):
        (root / split).mkdir(parents=True)
        rows = table(images, lambda r: r % 2, ["cats", "dogs"])
        path = str(root / split / "data-00000-of-00001.arrow")
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=5)
        (root / split / "state.json").write_text("{}")
    (root / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    opened = prepared(root, tmp_path / "out")
    assert opened.description.num_train == 23
    assert stored(opened) == files_of(images) * 2
    assert opened.description.class_names == ("cats", "dogs")


def test_invalid_tables_are_refused(tmp_path, images):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"id": [1, 2]}), path)
    assert "no column of encoded images among id" in refusal(lambda: open_encoded_images(str(path)))
    parquet.write_table(table(images, lambda r: r - 1), path)
    assert "labels range from -1 to 21" in refusal(lambda: open_encoded_images(str(path)))
    parquet.write_table(table(images, lambda r: r / 2), path)
    assert "column 'label' holds neither integers nor text" in refusal(lambda: open_encoded_images(str(path)))
    path.write_bytes(path.read_bytes()[:500])
    assert f"{path}: cannot be read" in refusal(lambda: open_encoded_images(str(path)))
    image = [{"bytes": None, "path": "x.png"}, {"bytes": None, "path": "y.png"}]
    image_type = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    parquet.write_table(pyarrow.table({"image": pyarrow.array(image, image_type)}), path)
    message = refusal(lambda: prepared(path, tmp_path / "out"))
    assert message == f"{path}: row 0: column 'image' holds no image bytes; embed the images"


def test_missing_pyarrow_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    message = refusal(lambda: open_encoded_images(str(tmp_path / "x.parquet")))
    assert "needs pyarrow; install it with `pip install 'paragan[parquet]'`" in message


@pytest.mark.parametrize("name", ["missing", "text.txt", "empty"])
def test_other_sources_are_refused(tmp_path, name):
    (tmp_path / "text.txt").write_text("no images")
    (tmp_path / "empty").mkdir()
    assert refusal(lambda: open_encoded_images(str(tmp_path / name), "SRC")).startswith("SRC: ")
