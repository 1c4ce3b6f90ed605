"""Labels of images in tables and next to them, in folders and archives; and tables of images."""

import csv
import io
import json
import os
import shutil
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from random import Random

from paragan.core.option_types import Choice
from paragan.datasets import folder
from paragan.datasets.preparation.dataset_check import check_dataset
from tests.attacks.fuzz_data import _image, fetch_all
from tests.attacks.mutations import dump, mutate_bytes, mutate_json, mutate_text

_TOKENS = (
    *('""', '"', ",", ";", "\t", "|", "\0", "\ufeff", "nan", "1e400", "-1", "a/../b", "\\", "0.png", "img/0", "#"),
    *("sep=;", "\ud800", "9" * 5000, "é", "label", "file_name", "split", "train", "\r", "\x1b[31m", "a/" * 40_000),
)
_ENCODINGS = ("utf-16", "utf-32", "cp1252", "utf-8-sig", "utf-16-le")


def _label_table(draws: Random, names: list[str]) -> tuple[str, bytes]:
    """A suffix, and a mutated table of labels in one of five forms."""
    header = (
        draws.choice(("file_name", "id", "File Name")),
        draws.choice(("label", "class", "Category")),
        draws.choice(("split", "note")),
    )
    rows = [(name, ("cat", "dog")[row % 2], ("train", "val")[row % 4 == 3]) for row, name in enumerate(names)]
    form = draws.choice(("csv", "jsonl", "objects", "pairs", "stylegan"))
    value = {
        "objects": [dict(zip(header, row, strict=True)) for row in rows],
        "pairs": [row[:2] for row in rows],
        "stylegan": {"labels": [row[:2] for row in rows]},
    }.get(form)
    stream = io.StringIO()
    csv.writer(stream, delimiter=draws.choice(",;\t|")).writerows([header, *rows])
    text = stream.getvalue() if form == "csv" else json.dumps(value)
    if form == "jsonl":
        text = "\n".join(json.dumps(dict(zip(header, row, strict=True))) for row in rows)
    match draws.randrange(4):
        case 0:
            content = mutate_bytes(draws, text.encode())
        case 1 if value is not None:
            content = dump(mutate_json(draws, value))
        case 3:
            content = text.encode(draws.choice(_ENCODINGS))
        case _:
            content = mutate_text(draws, text, _TOKENS).encode("utf-8", "surrogatepass")
    return form if form in ("csv", "jsonl") else "json", content


def _packed(draws: Random, root: Path, files: dict[str, bytes]) -> Path:
    """The files as a folder, a zip file, a tar file, or a folder of two tar files."""
    form = draws.choice(("folder", "zip", "tar", "tars"))
    data = root / "data"
    data.mkdir()
    if max(map(len, files)) > 255 or form == "zip":  # names that no folder takes
        with zipfile.ZipFile(data / "0.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return data / "0.zip"
    if form == "folder":
        for name, content in files.items():
            path = data / os.path.normpath(f"/{name}").lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return data
    with tarfile.open(data / "0.tar", "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    if form == "tars":
        shutil.copy(data / "0.tar", data / draws.choice(("1.tar", "val-0.tar")))
    return data if form == "tars" else data / "0.tar"


def fuzz_labels(draws: Random, root: Path) -> None:
    """Labels next to images or in `data.labels`; in some inputs a name in the archive is long, or leads out."""
    names = [f"{draws.choice(('', '', 'img/', 'train/', 'a.b/'))}{number}.png" for number in range(8)]
    if draws.random() < 0.1:
        names[0] = draws.choice(("../0.png", "a/" * 30_000 + "0.png", "a." * 30_000 + "png", "aB" * 30_000 + "0.png"))
    files = dict.fromkeys(names, _image(8))
    suffix, content = _label_table(draws, [draws.choice((name, os.path.splitext(name)[0])) for name in names])
    table = ""
    match draws.randrange(3):
        case 0:
            files[{"csv": "metadata.csv", "jsonl": "metadata.jsonl", "json": "dataset.json"}[suffix]] = content
        case 1:
            for name in names:
                label = {"label": draws.randrange(2), "caption": "x"}
                files[f"{name[:-4]}.json"] = dump(mutate_json(draws, label) if draws.random() < 0.2 else label)
        case _:
            table = str(root / f"labels.{suffix if draws.random() < 0.8 else draws.choice(('csv', 'json', 'txt'))}")
            Path(table).write_bytes(content)
    options = folder.Options(path=str(_packed(draws, root, files)), size=8, **({"labels": table} if table else {}))
    for split in ("train", "held_out"):
        fetch_all(folder.source(options, split))
    check_dataset(options.path, data=Choice("folder", options))


@cache
def _tables() -> tuple[bytes, bytes, bytes]:
    """Parquet of structs and of bytes, and an Arrow stream."""
    import pyarrow
    from pyarrow import parquet

    images = [{"bytes": _image(8), "path": f"{number}.png"} for number in range(8)]
    names = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    structs = pyarrow.table({"image": images, "label": [0, 1] * 4, "text": ["x"] * 8})
    structs = structs.replace_schema_metadata({"huggingface": json.dumps(names)})
    plain = pyarrow.table({"image": [image["bytes"] for image in images], "label": ["a", "b"] * 4})
    streams = io.BytesIO(), io.BytesIO(), io.BytesIO()
    parquet.write_table(structs, streams[0], row_group_size=3)
    parquet.write_table(plain, streams[1])
    with pyarrow.ipc.new_stream(streams[2], structs.schema) as writer:
        writer.write_table(structs)
    return streams[0].getvalue(), streams[1].getvalue(), streams[2].getvalue()


def fuzz_tables(draws: Random, root: Path) -> None:
    """Parquet files, and Arrow files of `datasets`; a pipe among them in some inputs."""
    structs, plain, arrow = _tables()
    if draws.random() < 0.5:
        (root / "data-0.arrow").write_bytes(mutate_bytes(draws, arrow, draws.choice((1, 4))))
        (root / "state.json").write_text("{}")
    else:
        content = draws.choice((structs, plain))
        (root / "train.parquet").write_bytes(mutate_bytes(draws, content, draws.choice((1, 4))))
        if draws.random() < 0.5:
            (root / "test.parquet").write_bytes(content)
    if draws.random() < 0.1:
        os.mkfifo(root / draws.choice(("data-1.arrow", "val.parquet")))
    for split in ("train", "held_out"):
        fetch_all(folder.source(folder.Options(path=str(root), size=8), split))
    check_dataset(str(root))


TARGETS = {"labels": fuzz_labels, "tables": fuzz_tables}
