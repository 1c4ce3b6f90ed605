"""Shards at scale: 200,000 images, killed and resumed; memory, random access, an index of 1.3 million samples.

python -m benchmarks.shards [IMAGES]

The images are 64x64 JPEG files of smooth noise, 1,000 distinct ones; the others are hard links to them. `prepare` is a
process of the command with two threads; its peak is VmHWM, polled until it ends, `start_mib` that of the same command
on 1,000 images. Opening and reading the index are best of 20 in CPU seconds, with the file in the page cache.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.record import write
from paragan.datasets import _image_source, shards
from paragan.storage.shard_folder import RECORD, ShardFolder, map_index

DISTINCT = 1000
CLASSES = 10
KILLS = 3
READS = 5000
INDEXED = 1_300_000


def make(root: Path, count: int) -> list[Path]:
    """Return `count` files in ten class folders, in sorted order."""
    noise = np.random.default_rng(0).integers(0, 256, (DISTINCT, 8, 8, 3), np.uint8)
    originals = root / ".originals"
    originals.mkdir(parents=True)
    for number, pixels in enumerate(noise):
        Image.fromarray(pixels).resize((64, 64)).save(originals / f"{number}.jpg")
    paths = []
    for label in range(CLASSES):
        (root / f"class-{label}").mkdir()
        for number in range(count // CLASSES):
            path = root / f"class-{label}" / f"{number:06d}.jpg"
            os.link(originals / f"{number % DISTINCT}.jpg", path)
            paths.append(path)
    return paths


def prepare(source: Path, out: Path, *words: str, kill_after: int | None = None) -> dict[str, Any]:
    """Run the command; kill it after so many shards. Returns its peak in MiB and its CPU seconds."""
    command = [sys.executable, "-m", "paragan", "data", "prepare", str(source), str(out), "--threads=2", *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0.0
    parts = out / ".prepare"
    while process.poll() is None:
        peak = max(peak, peak_mib(process.pid))
        if kill_after is not None and len(list(parts.glob("*.part"))) >= kill_after:
            process.kill()
        time.sleep(0.02)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"exit_code": process.returncode, "peak_mib": round(peak, 1), "cpu_s": round(seconds, 1)}


def peak_mib(pid: int) -> float:
    """VmHWM of a process; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def killed(source: Path, out: Path, num_shards: int, *words: str) -> list[dict[str, Any]]:
    """Prepare with kills at random numbers of shards, then to the end."""
    moments = sorted(random.Random(0).sample(range(1, num_shards), KILLS))
    attempts = [prepare(source, out, *words, kill_after=moment) | {"killed_after": moment} for moment in moments]
    return [*attempts, prepare(source, out, *words)]


def equal_files(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files."""
    names = sorted(path.name for path in one.iterdir())
    same = names == sorted(path.name for path in other.iterdir())
    return same and all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


def random_access(opened: ShardFolder, paths: list[Path]) -> dict[str, Any]:
    """Read rows at random and compare them with the files of the source."""
    rows = random.Random(1).sample(range(len(opened)), min(READS, len(opened)))
    equal = sum(opened.read(row) == paths[row].read_bytes() for row in rows)
    shards_s = best_cpu_s(lambda: [opened.read(row) for row in rows], 3)
    files_s = best_cpu_s(lambda: [paths[row].read_bytes() for row in rows], 3)
    return {"reads": len(rows), "equal_to_source": equal, "cpu_of_plain_files": round(shards_s / files_s, 2)}


def flipped_bit(out: Path) -> dict[str, Any]:
    """Change one bit in the middle of a random image; the output of `data check`."""
    opened = ShardFolder(out)
    row = random.Random(2).randrange(len(opened))
    shard, offset, num_bytes = opened.locate(row)
    with (out / shard.name).open("r+b") as file:
        file.seek(offset + num_bytes // 2)
        byte = file.read(1)[0]
        file.seek(offset + num_bytes // 2)
        file.write(bytes([byte ^ 1]))
    command = [sys.executable, "-m", "paragan", "data", "check", str(out), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = [line.replace(f"{out}/", "") for line in json.loads(done.stdout)["damaged"]]
    return {"row": row, "exit_code": done.returncode, "damaged": found}


def large_index(folder: Path, small: Path) -> dict[str, Any]:
    """An index of 1.3 million samples: size, opening against reading, and the data set on it."""
    description = json.loads((small / "dataset.json").read_text())
    records = np.zeros(INDEXED, RECORD)
    records["split_hash"] = np.random.default_rng(0).integers(0, 2**32, INDEXED, np.uint32)
    records["label"] = np.arange(INDEXED) % CLASSES
    folder.mkdir()
    path = folder / "index.bin"
    path.write_bytes(records.tobytes())
    files = [{"name": f"shard-{i:06d}.tar", "num_bytes": 10**8, "sha256": "0" * 64} for i in range(INDEXED // 1000)]
    changed = {"num_samples": INDEXED, "samples_per_shard": 1000, "shards": files}
    (folder / "dataset.json").write_text(json.dumps(description | changed))
    del records
    reading = best_cpu_s(path.read_bytes)
    opening = best_cpu_s(lambda: map_index(path, INDEXED))
    options = shards.Options(path=str(folder))
    return {
        "samples": INDEXED,
        "index_mb": round(path.stat().st_size / 1e6, 2),
        "reading_ms": round(1e3 * reading, 3),
        "opening_ms": round(1e3 * opening, 4),
        "opening_share": round(opening / reading, 5),
        "opening_with_dataset_json_ms": round(1e3 * best_cpu_s(lambda: ShardFolder(folder)), 2),
        "opening_data_set_ms": round(1e3 * best_cpu_s(lambda: shards.source(options, "train")), 1),
        "resident_mb_after_all_records": resident_growth_mb(path),
    }


def resident_growth_mb(path: Path) -> float:
    """MB that a fresh process grows by when it opens the index and reads every record."""
    code = (
        "import sys; from pathlib import Path; from paragan.storage.shard_folder import map_index\n"
        "def rss(): return int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]) * 1024\n"
        f"before = rss(); index = map_index(Path(sys.argv[1]), {INDEXED}); index['sha256'].max(); print(rss() - before)"
    )
    return round(int(subprocess.check_output([sys.executable, "-c", code, str(path)])) / 1e6, 1)


def best_cpu_s(call: Callable[[], Any], times: int = 20) -> float:
    """Least CPU seconds of one call."""
    measured = []
    for _ in range(times):
        began = time.process_time()
        call()
        measured.append(time.process_time() - began)
    return min(measured)


def main(count: int) -> None:
    _image_source.CACHE_BYTES = 0  # every image is decoded
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        paths = make(root / "images", count)
        make(root / "few", 1000)
        found: dict[str, Any] = {"note": __doc__, "images": count}
        for title, words in (("unchanged", ()), ("resized_to_32", ("--size=32",))):
            one = root / title
            start = prepare(root / "few", root / f"{title}-few", *words)["peak_mib"]
            whole = prepare(root / "images", one, *words)
            attempts = killed(root / "images", root / f"{title}-killed", count // 1000, *words)
            equal = equal_files(one, root / f"{title}-killed")
            found[title] = {"start_mib": start, "at_once": whole, "killed": attempts, "equal_bytes": equal}
            print(json.dumps(found[title]), flush=True)
        found["random_access"] = random_access(ShardFolder(root / "unchanged"), paths)
        found["flipped_bit"] = flipped_bit(root / "unchanged-killed")
        found["index"] = large_index(root / "large", root / "unchanged")
        print(json.dumps(found, indent=1))
        write("shards", found)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
