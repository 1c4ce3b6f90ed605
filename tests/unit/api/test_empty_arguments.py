"""Lists and maps that are None, null, empty or a value: what is wrong and what to write, in one line."""

import pytest

import paragan as pg
from paragan.config import parse_recipe
from paragan.core.errors import ConfigError
from tests.unit.api.test_networks_of_the_field import D, G, data, trainer

RECIPE = "data: {name: digits}\nmodel: dcgan\nloss: hinge\n"
SETTINGS = {
    "penalties": (None, "penalties: must be a list, not null; leave it out, or write [] for none"),
    "writers": (None, "writers: must be a list, not null; leave it out for the default"),
    "g.optimizer.groups": (None, "g.optimizer.groups: must be a list, each a map, not null; leave it out, or write []"),
    "d.optimizer.arguments": (None, "d.optimizer.arguments: must be a map, not null; leave it out, or write {} for"),
    "adversarial.weights": (None, "not null; leave it out, or write {} for none"),
    "g.train": (None, "g.train: must be a list, each text, not null; leave it out, or write [] for none"),
}
EMPTY = {
    "[]": "writers is empty, and must include jsonl, the record of the run; use writers=[jsonl]",
    "[images]": "writers has only images, and must include jsonl, the record of the run; use writers=[jsonl,images]",
}


@pytest.mark.parametrize("key", SETTINGS)
def test_null_for_a_list_or_map_says_what_to_write_in_files_words_and_python(tmp_path, key):
    value, message = SETTINGS[key]
    with pytest.raises(ConfigError) as of_word:
        parse_recipe(RECIPE, "r.yaml", overrides=[f"{key}=null"])
    *sections, last = key.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(sections)] + [f"{'  ' * len(sections)}{last}: null"]
    with pytest.raises(ConfigError) as of_file:
        parse_recipe(RECIPE + "\n".join(lines), "r.yaml")
    with pytest.raises(ConfigError) as of_python:
        trainer(G(), D(), tmp_path, **{key.replace(".", "__"): value})
    for caught in (of_word, of_file, of_python):
        assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("written", EMPTY)
def test_writers_without_the_record_say_what_to_write(written):
    with pytest.raises(ConfigError) as caught:
        parse_recipe(RECIPE, "r.yaml", overrides=[f"writers={written}"])
    assert EMPTY[written] in str(caught.value)


@pytest.mark.parametrize(
    ("penalties", "message"),
    [
        (3, "penalties: must be a list, not 3"),
        ([pg.R1Penalty(pg.R1Options())], "settings: penalties has a penalty object; pass it in terms="),
        (pg.R1Penalty(pg.R1Options()), "settings: penalties has a penalty object; pass it in terms="),
        ([{"name": "r1", "weight": float("nan")}], "settings: penalties.0.weight is nan; pass a finite number"),
        ([object()], "settings: penalties is a list; pass a number, text"),
    ],
)
def test_penalties_of_another_kind_are_one_line(tmp_path, penalties, message):
    with pytest.raises(ConfigError) as caught:
        trainer(G(), D(), tmp_path, penalties=penalties)
    assert message in str(caught.value)


@pytest.mark.parametrize("penalties", [[], (), "r1", {"name": "r1"}, ["r1", {"name": "lecam"}], ("r1",)])
def test_penalties_are_a_list_or_one(tmp_path, penalties):
    chosen = trainer(G(), D(), tmp_path, penalties=penalties).config.penalties
    assert len(chosen) == (1 if isinstance(penalties, str | dict) else len(penalties))


@pytest.mark.parametrize("form", [lambda path: path, lambda path: [path], lambda path: ({"name": path},)])
def test_a_penalty_of_a_file_is_also_named_by_a_path(tmp_path, form):
    file = tmp_path / "mine.py"
    file.write_text("from paragan.penalties.r1 import Options as Options, Penalty as Penalty\n")
    (chosen,) = trainer(G(), D(), tmp_path, penalties=form(file)).config.penalties
    assert chosen.name == str(file)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"terms": None}, "terms is None; pass a list of terms"),
        ({"loss": None}, "loss is None; pass a name"),
        ({"buckets": None}, "buckets is None; pass a list"),
        ({"players": {"extra": None}}, "players: extra is None; pass a torch.nn.Module"),
        ({"discriminators": {}}, "discriminators is empty; pass a torch.nn.Module, or several by name"),
        ({"discriminators": None}, "discriminator is None; pass a torch.nn.Module"),
        ({"ragged": [1]}, "ragged is a list; pass the axis by name"),
    ],
)
def test_arguments_that_are_none_or_empty_are_one_line(tmp_path, arguments, message):
    values = {"generator": G(), "discriminators": D(), "data": data(), "out": tmp_path, **arguments}
    with pytest.raises(ConfigError) as caught:
        pg.Trainer(**values)
    assert str(caught.value).startswith(message)
