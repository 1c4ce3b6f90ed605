"""No secret of the environment is in a run folder or in what a command prints."""

from __future__ import annotations

import pytest

from paragan.cli.main import main
from tests.attacks.small_run import SETTINGS

SECRETS = {
    "WANDB_API_KEY": "wandb-5ecret-5ecret",
    "AWS_SECRET_ACCESS_KEY": "aws-5ecret-5ecret",
    "PARAGAN_TOKEN": "7a11" * 16,
    "HTTPS_PROXY": "http://user:proxy-5ecret@127.0.0.1:1",
}


@pytest.mark.parametrize(("words", "code"), [((), 0), (("data.name=folder", "data.path=/nowhere"), 2)])
def test_run_folder_and_output_contain_no_secret_of_the_environment(tmp_path, monkeypatch, capfd, words, code):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "run"
    assert main(["train", "digits", *SETTINGS, "evaluation.features=null", *words, "--out", str(out)]) == code
    if code == 0:
        assert main(["report", str(out)]) == 0
    written = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    captured = capfd.readouterr()
    assert captured.out + captured.err
    assert (code != 0) == (b"seconds" not in written)
    for value in SECRETS.values():
        assert value not in captured.out + captured.err and value.encode() not in written
