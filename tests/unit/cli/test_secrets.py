"""No secret of the environment is in a run folder or in what a command prints."""

import pytest

from paragan.cli.main import main
from paragan.core.printable import to_printable
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


@pytest.mark.parametrize(
    "words",
    [
        ("g.init=https://user:pass-5ecret@host/x",),
        ("g.init=s3://user:pass-5ecret@bucket/x",),
        ("d.init=https://:pass-5ecret@host/x",),
        ("evaluation.features={name: exported, weights: 'https://user:pass-5ecret@host/x.pt2', size: 8}",),
        ("data.name=folder", "data.path=ftp://user:pass-5ecret@host/x"),
        ("no.such.setting=https://user:pass-5ecret@host/x",),
    ],
)
def test_passwords_in_addresses_of_any_setting_are_not_repeated(tmp_path, capfd, words):
    assert main(["train", "digits", *SETTINGS, "evaluation.features=null", *words, "--out", str(tmp_path / "run")]) == 2
    said = capfd.readouterr()
    assert said.err.strip() and "5ecret" not in said.out + said.err


def test_text_without_a_password_is_unchanged():
    for text in ("a@b: http://host/x", "ratio 1:2@3", "C:/d@e", "git@host:/x", "http://host:80/a@b"):
        assert to_printable(text) == text
