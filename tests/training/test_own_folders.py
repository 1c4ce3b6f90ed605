"""Recipe `own` by the command that `data check` prints, on a folder that no setting was chosen with."""

import pytest

from benchmarks import own_folders, own_images


@pytest.mark.slow  # 8 CPU minutes
@pytest.mark.timeout(3600)
def test_own_learns_for_eight_minutes_without_a_collapse(tmp_path, data_root, monkeypatch):
    archive = data_root / "tiny-imagenet-50" / "tiny-imagenet-50.tar.xz"
    if not archive.exists():
        pytest.skip(f"no {archive}")
    folder, run = tmp_path / "tiny", tmp_path / "run"
    folder.mkdir()
    monkeypatch.setattr(own_folders, "DATA", data_root)
    own_folders.tiny(folder)
    own_images.train(own_images.command(folder, size=32, seed=0, run=run, words=()), cpu_s=480)
    result = own_images.outcome(run)
    assert not result["lost"], result
    assert result["fell"], result
