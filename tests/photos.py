"""A folder of real images as a user might have it: classes as sub-folders, several sizes, formats and modes.

python3 tests/photos.py ARCHIVE_FOLDER OUT COUNT: the first images of ten classes of the tar in ARCHIVE_FOLDER.
"""

from __future__ import annotations

import sys
import tarfile
from collections import Counter
from pathlib import Path


def unpack(archive: Path, out: Path, count: int, num_classes: int = 10) -> None:
    """`count` images in all, equally many of each class."""
    (tar,) = archive.glob("*.tar*")
    taken: Counter[str] = Counter()
    with tarfile.open(tar) as file:
        for member in file:
            path = Path(member.name)
            if not member.isfile() or "train" not in path.parts or path.suffix.lower() not in (".jpg", ".jpeg", ".png"):
                continue
            name = path.parts[path.parts.index("train") + 1]
            if taken[name] >= count // num_classes or (name not in taken and len(taken) >= num_classes):
                continue
            taken[name] += 1
            target = out / name / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            stream = file.extractfile(member)
            assert stream is not None
            target.write_bytes(stream.read())
            if sum(taken.values()) == count:
                return
    raise SystemExit(f"{tar}: found {sum(taken.values())} images of {len(taken)} classes, expected {count}")


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
