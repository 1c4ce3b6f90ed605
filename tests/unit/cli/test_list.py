"""`list` and `config`: every name with a whole sentence, every setting of a run."""

import json

import pytest

from paragan.cli.main import main
from paragan.core import registry


@pytest.mark.parametrize("name", registry.categories())
def test_list_prints_every_name_of_a_category_with_a_sentence(name, capsys):
    assert main(["list", name, "--json"]) == 0
    names = json.loads(capsys.readouterr().out)
    assert set(registry.names(name)) <= set(names)
    assert main(["list", name]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert [line.split()[0] for line in lines] == names
    assert [line for line in lines if "torch.optim." not in line and not line.endswith(".")] == []


@pytest.mark.parametrize(
    ("other", "name"), [("strategies", "parallel"), ("optimizers", "optim"), ("optimisers", "optim")]
)
def test_list_accepts_other_words_for_a_category(other, name, capsys):
    main(["list", name])
    expected = capsys.readouterr().out
    assert main(["list", other]) == 0
    assert capsys.readouterr().out == expected
    assert main(["list", other, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == list(registry.descriptions(name))


def test_list_without_a_shelf_shows_all(capsys):
    main(["list", "--json"])
    assert list(json.loads(capsys.readouterr().out)) == registry.categories()
    main(["list"])
    out = capsys.readouterr().out
    assert "models\n  biggan" in out and "\n  dcgan" in out


def test_config_prints_the_resolved_tree(capsys, here):
    assert main(["config", "digits", "train.batch=8", "model.latent=7", "--json"]) == 0
    tree = json.loads(capsys.readouterr().out)
    assert (tree["train"]["batch"], tree["model"]["latent"], tree["data"]["name"]) == (8, 7, "digits")
    main(["config", "digits", "train.batch=8", "model.latent=7"])
    (here / "mine.yaml").write_text(capsys.readouterr().out)
    main(["config", "mine.yaml", "--json"])
    assert json.loads(capsys.readouterr().out) == tree


@pytest.mark.parametrize("is_rank", [False, True])
def test_dropped_settings_are_listed_once_not_by_every_rank(is_rank, monkeypatch, capsys):
    if is_rank:
        numbers = dict.fromkeys(("RANK", "LOCAL_RANK"), "1") | dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), "2")
        for name, value in (numbers | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}).items():
            monkeypatch.setenv(name, value)
    assert main(["config", "digits", "data=fashion_mnist"]) == 0
    warning = "warning: data.name=fashion_mnist drops the recipe's data.size=16; add what you want to keep\n"
    assert capsys.readouterr().err == ("" if is_rank else warning)
