"""Whether a folder without a checkpoint, or behind a bucket, is that of the run in the bucket."""

from types import SimpleNamespace

import pytest

from paragan.extensions.buckets import remote_run


@pytest.mark.parametrize(("stored_text", "is_continued"), [("seed: 1\n", True), ("seed: 2\n", False)])
def test_a_folder_without_a_checkpoint_continues_the_run_of_its_config_alone(tmp_path, stored_text, is_continued):
    """A run that was killed before its first upload of a checkpoint, and that of somebody else."""
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    checkpoints = SimpleNamespace(committed=list)
    bucket = SimpleNamespace(read=lambda name, most: (stored_text.encode(), None))
    assert remote_run._is_continued(checkpoints, bucket, tmp_path) is is_continued


@pytest.mark.parametrize("committed", [["step-000000002"], []], ids=["without the checkpoint", "without a config"])
def test_a_folder_that_lacks_what_the_bucket_has_does_not_continue_its_run(tmp_path, committed):
    checkpoints = SimpleNamespace(committed=lambda: committed, manifest=lambda name: b"{}")
    bucket = SimpleNamespace(read=lambda name, most: (b"seed: 1\n", None))
    assert not remote_run._is_continued(checkpoints, bucket, tmp_path)
