"""Files that replace others: names that are long in bytes, errors that name the file, folders behind links."""

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from paragan.core.errors import CheckpointError, outcome
from paragan.core.files import atomic_write, create_subfolder, is_temporary, write_bytes


@pytest.mark.parametrize("name", ["n" * 255, "画" * 85, "é" * 127, "😀" * 63])
def test_file_of_the_longest_name_is_written_and_leaves_nothing_over(tmp_path, name):
    write_bytes(tmp_path / name, b"first")
    write_bytes(tmp_path / name, b"second")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"second"]


def test_temporary_file_of_a_killed_process_is_known_and_removed(tmp_path):
    path = tmp_path / ("画" * 80)
    (stale := tmp_path / f".{os.fsdecode(os.fsencode(path.name)[:100])}.0a1b2c3d.tmp").touch()
    assert is_temporary(stale, path)
    assert not is_temporary(path, path)
    write_bytes(path, b"")
    assert not stale.exists()


CODE = """
import sys
from pathlib import Path
from paragan.core.errors import outcome
from paragan.core.files import write_bytes
try:
    write_bytes(Path(sys.argv[1]), bytes(1 << 20))
except OSError as error:
    print(outcome(error))
"""


def test_file_above_the_limit_of_the_system_is_one_line_that_names_it(tmp_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))

    process = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "out")],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert process.stdout.startswith("(2, ")
    assert str(tmp_path / "out") in process.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_error_while_writing_names_the_file(tmp_path, number):
    with pytest.raises(OSError, match="out") as caught, atomic_write(tmp_path / "out"):
        raise OSError(number, os.strerror(number))
    code, line = outcome(caught.value)
    assert code == 2 and line.startswith(f"{tmp_path / 'out'}: {os.strerror(number)}")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EBUSY, errno.EIO, errno.EMFILE])
def test_error_of_the_system_is_one_line_without_its_number_and_with_what_to_do(number):
    code, line = outcome(OSError(number, os.strerror(number), "runs/a/metrics.jsonl"))
    assert code == 2 and line.startswith(f"runs/a/metrics.jsonl: {os.strerror(number)}") and "Errno" not in line
    assert (";" in line) == (number not in (errno.ESTALE, errno.EBUSY))


def test_error_of_a_file_that_is_read_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic_write(tmp_path / "out"):
        (tmp_path / "input").read_bytes()
    assert caught.value.filename == str(tmp_path / "input")


@pytest.mark.parametrize("link", ["a", "a/b", "a/b/c"])
def test_folder_behind_a_link_is_refused(tmp_path, link):
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "out"
    (out / link).parent.mkdir(parents=True)
    (out / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="symbolic link"):
        create_subfolder(out, "a/b/c")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_folder_that_is_given_behind_a_link_is_used(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    assert create_subfolder(tmp_path / "link" / "run", "a").is_dir()
