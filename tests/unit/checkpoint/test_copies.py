"""Other folders next to the checkpoints of a run stay, and a whole checkpoint is said to be written."""

import shutil

import pytest

from paragan.checkpoint.writer import CheckpointWriter
from paragan.core.errors import CheckpointError
from tests.unit.checkpoint.test_checkpoint import example, files_of, store

__all__ = ["store"]


@pytest.mark.parametrize("name", ["step-000000001-copy", "step-old", "step-000000009 (copy)", "step-"])
def test_copies_of_a_user_next_to_the_checkpoints_stay_as_they_are(store, name):
    store.save(*example(1))
    shutil.copytree(store.path_of(1), store.folder / name)
    before = files_of(store.folder / name)
    for step in range(2, 9):
        store.save(*example(step))
    assert files_of(store.folder / name) == before and not list(store.folder.glob("damaged-*"))
    assert store.newest().path == store.path_of(8) and store.paths()[-1] == store.path_of(8)


def test_save_is_whole_where_what_follows_fails(store, monkeypatch):
    store.save(*example(1))
    monkeypatch.setattr(CheckpointWriter, "_prune", lambda *_: (_ for _ in ()).throw(PermissionError(13, "denied")))
    with pytest.raises(CheckpointError, match=r"^checkpoint of step 2 in .*denied") as refused:
        store.save(*example(2))
    assert "not written" not in str(refused.value)
    assert store.newest().path == store.path_of(2)
