"""What tests of data sets share: the message of a refusal, and the files that are opened."""

from collections.abc import Callable

import pytest

from paragan.core.errors import DataError
from paragan.datasets.base.file_readers import FolderReader


def refusal(read: Callable[[], object]) -> str:
    """The message of the `DataError` that a call raises, which is one line."""
    with pytest.raises(DataError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that receives the path of every file of a folder that is read."""
    reads: list[str] = []
    original = FolderReader.read

    def read(self, path, limit=None):
        reads.append(path)
        return original(self, path, limit)

    monkeypatch.setattr(FolderReader, "read", read)
    return reads
