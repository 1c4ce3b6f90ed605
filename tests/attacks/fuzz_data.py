"""Data files and folders: idx, npz, zip, tar, folders with pipes, links and any names; images of six formats."""

import atexit
import gzip
import io
import json
import os
import shutil
import struct
import tarfile
import tempfile
import zipfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from paragan.datasets import cifar10, folder, mnist, npz, paired, shards
from paragan.datasets._options import PixelOptions
from paragan.datasets._pixel_format import PixelFormat
from tests.attacks.mutations import dump, mutate_bytes, mutate_json
from tests.prepared_shards import image_folder, prepared

_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)


def fetch_all(source) -> None:
    source.fetch(np.arange(min(len(source), 8)))


@cache
def _image(side: int, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    pixels = np.arange(side * side * 3, dtype=np.uint32).reshape(side, side, 3).astype(np.uint8)
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def fuzz_idx(draws: Random, root: Path) -> None:
    """The four files of MNIST with 8 images each; one of them, packed or not, is mutated inside or outside gzip."""
    for split, count in (("train", 8), ("t10k", 8)):
        images = struct.pack(">IIII", 0x803, count, 28, 28) + bytes(count * 784)
        labels = struct.pack(">II", 0x801, count) + bytes(range(count))
        for name, content in ((f"{split}-images-idx3-ubyte", images), (f"{split}-labels-idx1-ubyte", labels)):
            inside = draws.random() < 0.3
            outside = draws.random() < 0.3
            content = mutate_bytes(draws, content) if inside else content
            content = gzip.compress(content, 1) if draws.random() < 0.5 else content
            content = mutate_bytes(draws, content) if outside else content
            ending = ".gz" if content[:2] == b"\x1f\x8b" else ""
            (root / f"{name}{ending}").write_bytes(content)
    for split in ("train", "held_out"):
        fetch_all(mnist.source(mnist.Options(str(root)), split))


def fuzz_npz(draws: Random, root: Path) -> None:
    """Arrays mutated inside their zip members, or the file as a whole."""
    arrays = {
        "images": np.zeros((6, 8, 8, 3), np.uint8),
        "labels": np.array([0, 1, 0, 1, 0, 1]),
        "class_names": np.array(["a", "b"]),
    }
    path, compression = root / "data.npz", draws.choice(_COMPRESSIONS)
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.save(stream, array)
            content = stream.getvalue()
            archive.writestr(f"{name}.npy", mutate_bytes(draws, content, 2) if draws.random() < 0.5 else content)
    if draws.random() < 0.5:
        path.write_bytes(mutate_bytes(draws, path.read_bytes()))
    for split in ("train", "held_out"):
        fetch_all(npz.source(npz.Options(path=str(path)), split))


def fuzz_zip(draws: Random, root: Path) -> None:
    path = root / "images.zip"
    with zipfile.ZipFile(path, "w", draws.choice(_COMPRESSIONS)) as archive:
        for number in range(6):
            content = _image(8)
            archive.writestr(f"class {number % 2}/{number}.png", content)
    path.write_bytes(mutate_bytes(draws, path.read_bytes()))
    for split in ("train", "held_out"):
        fetch_all(folder.source(folder.Options(path=str(path), size=8), split))


def fuzz_tar(draws: Random, root: Path) -> None:
    """CIFAR-10's JPEG layout, or the pairs of the facades; mutated before or after it is packed."""
    stream = io.BytesIO()
    facades = draws.random() < 0.5
    names = [f"{part}/{n}.jpg" for part in ("train", "val") for n in range(4)]
    if not facades:
        names = [f"train/0000{n}_{n}.jpg" for n in range(4)] + [f"test/c_000{n}_{n}.jpg" for n in range(4)]
    content = _image(32, "JPEG")
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    packed = stream.getvalue()
    if draws.random() < 0.5:
        packed = mutate_bytes(draws, packed)
    mode = draws.choice(("", "gz", "xz"))
    if mode == "gz":
        packed = gzip.compress(packed, 1)
    elif mode == "xz":
        import lzma

        packed = lzma.compress(packed, preset=0)
    packed = mutate_bytes(draws, packed) if draws.random() < 0.5 else packed
    if facades:
        path = root / f"pairs.tar{'.' * bool(mode)}{mode}"
        path.write_bytes(packed)
        fetch_all(paired.source(paired.Options(path=str(path), size=32), "train"))
    else:
        (root / "cifar10-jpeg.tar.xz").write_bytes(packed)
        fetch_all(cifar10.source(cifar10.Options(str(root)), "train"))


def fuzz_folder(draws: Random, root: Path) -> None:
    """Trees of images next to pipes, links (also in circles, also out of the folder), devices and hidden files."""
    below = root / "data"
    below.mkdir()
    for number in range(draws.randint(1, 12)):
        parent = below / draws.choice((".", "a", "b", "a/deep", "train", "val", ".hidden", "__MACOSX", "c\nd"))
        parent.mkdir(parents=True, exist_ok=True)
        name = os.fsencode(f"{number}") + draws.choice((b".png", b".jpg", b".PNG", b".txt", b"\xff.png", b"\n.png"))
        path = os.path.join(os.fsencode(parent), name)
        match draws.randrange(9):
            case 0:
                os.mkfifo(path)
            case 1:
                os.symlink(draws.choice((b"/dev/zero", b"/dev/null", b"nowhere", b".", b"..", b"/etc/hostname")), path)
            case 2:
                os.mkdir(path)
            case 3:
                content = mutate_bytes(draws, _image(8))
                _write(path, content)
            case 4:
                _write(path, b"")
            case _:
                _write(path, _image(8))
    for split in ("train", "held_out"):
        fetch_all(folder.source(folder.Options(path=str(below), size=8), split))


@cache
def _shards() -> Path:
    """Prepared shards of nine images, made once. Not to be changed."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    prepared(image_folder(folder / "images", 9), folder / "shards")
    return folder / "shards"


def fuzz_index(draws: Random, root: Path) -> None:
    """Prepared shards in a folder."""
    data = changed_shards(draws, root)
    for split in ("train", "held_out"):
        fetch_all(shards.source(shards.Options(path=str(data), size=8), split))


def changed_shards(draws: Random, root: Path) -> Path:
    """Prepared shards with another description, index or shard; signed again in half of the cases."""
    data = Path(shutil.copytree(_shards(), root / "data"))
    description, index = data / "dataset.json", data / "index.bin"
    names = sorted(path for path in data.iterdir() if path != description)
    if draws.random() < 0.4:
        text = description.read_bytes()
        found = json.loads(text)
        if draws.random() < 0.3:  # names and hashes, of which caches make paths
            entry = draws.choice([found["index"], *found["shards"]])
            entry[draws.choice(["name", "sha256"])] = draws.choice([str(root.parent / "victim"), "../victim", "", "."])
        changed = dump(mutate_json(draws, found)) if draws.random() < 0.7 else mutate_bytes(draws, dump(found))
        description.write_bytes(changed)
    else:
        path = index if draws.random() < 0.6 else draws.choice(names)
        path.write_bytes(mutate_bytes(draws, path.read_bytes()))
        if draws.random() < 0.5:  # as an attacker would
            found = json.loads(description.read_text())
            about = {
                "name": path.name,
                "num_bytes": path.stat().st_size,
                "sha256": sha256(path.read_bytes()).hexdigest(),
            }
            found["index"] = about if path == index else found["index"]
            found["shards"] = [about if one["name"] == path.name else one for one in found["shards"]]
            description.write_text(json.dumps(found))
    return data


def _write(path: bytes, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)


_FORMATS = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "WEBP": ("RGB", "RGBA"),
    "BMP": ("1", "L", "P", "RGB"),
    "GIF": ("L", "P"),
    "TIFF": ("1", "L", "RGB", "CMYK", "I;16", "F"),
}


@cache
def _encoded(kind: str, mode: str) -> bytes:
    pixels = Random(7).randbytes(24 * 20 * 3)
    image = Image.fromarray(np.frombuffer(pixels, np.uint8).reshape(20, 24, 3)).convert("RGB")
    image = image.convert("L").convert(mode) if mode in ("1", "I;16", "F", "LA") else image.convert(mode)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def fuzz_images(draws: Random, root: Path) -> None:
    kind = draws.choice(list(_FORMATS))
    data = mutate_bytes(draws, _encoded(kind, draws.choice(_FORMATS[kind])))
    options = PixelOptions(
        channels=draws.choice((1, 3, 4, 5)),
        crop=draws.choice(("center", "squash", "random")),
        bits=draws.choice((8, 16)),
        range=draws.choice((None, (-100.0, 300.0))),
    )
    PixelFormat(size=(8, 8), options=options).decode(data, "fuzzed image", draws.choice((None, draws.getrandbits(60))))


TARGETS = {
    "idx": fuzz_idx,
    "npz": fuzz_npz,
    "zip": fuzz_zip,
    "tar": fuzz_tar,
    "folder": fuzz_folder,
    "index": fuzz_index,
    "images": fuzz_images,
}
