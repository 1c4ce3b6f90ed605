"""Own code of a run that lies elsewhere now: `--code DIR` points at it, and it is known by its content."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import typer
from safetensors import safe_open
from safetensors.torch import save_file

from paragan.cli.main import command_line, main
from paragan.config import read_recipe
from paragan.core.errors import ConfigError
from paragan.core.outside_code import CodeFolder, code_fingerprints, has_moved
from paragan.distributed.launch import launcher
from paragan.runs import start
from paragan.runs.run_request import RunRequest
from tests import unlabelled_networks
from tests.unit.cli.test_outside_file import RECIPE

NETS = Path(unlabelled_networks.__file__).read_text(encoding="utf-8")
WITHOUT_RUNS = {"tune"}  # takes recipes only
VERBS = {
    "sample": ["sample", "run", "--num", "2"],
    "export": ["export", "run", "--out", "exported"],
    "eval": ["eval", "run"],
    "replay": ["replay", "run", "--step", "1"],
    "plan": ["plan", "run"],
    "launch": ["launch", "local", "run", "--dry-run"],
    "resume": ["train", "run", "train.kimg=0.024"],
    "verify": ["verify", "run/config.yaml", "--ranks", "1"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run, and with its code in another folder than when it was trained."""
    folder = tmp_path_factory.mktemp("trained")
    old = folder / "old" / "nets"
    old.mkdir(parents=True)
    (old / "wgan.py").write_text(NETS)
    text = RECIPE.replace("model: wgan.py", "model: nets/wgan.py").replace("kimg: 0.016", "kimg: 0.016, threads: 1")
    (folder / "old" / "wgan.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        assert main(["train", "old/wgan.yaml", "--out", "run"]) == 0
    old.rename(folder / "new place")
    for name in [name for name in sys.modules if name.startswith("paragan-file:")]:
        del sys.modules[name]
    return folder


@pytest.fixture
def moved(trained, tmp_path, monkeypatch):
    """The new folder of the code of a run, which the run does not know."""
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return Path("new place")


def test_every_verb_that_imports_code_of_a_run_takes_the_folder_of_the_code():
    commands = typer.main.get_command(command_line()).commands
    options = {name: {o for p in command.params for o in p.opts} for name, command in commands.items()}
    trusting = {name for name, known in options.items() if "--trust" in known} - WITHOUT_RUNS
    assert len(trusting) > 8
    assert {name for name in trusting if "--code" not in options[name]} == set()


@pytest.mark.parametrize("verb", [name for name in VERBS if name != "verify"])
def test_moved_code_opens_by_its_folder_if_its_content_is_that_of_the_run(moved, verb, capsys):
    assert main(VERBS[verb]) == 2
    assert "--code DIR" in capsys.readouterr().err
    code, out, error = main([*VERBS[verb], "--code", "new place"]), *capsys.readouterr()
    assert code == 0 or (verb == "eval" and "has no scores" in error)  # opened, and refused for another reason
    assert verb != "launch" or "--code 'new place'" in out


def test_verify_opens_moved_code_by_its_folder(moved, capsys):
    assert main([*VERBS["verify"], "--code", "new place"]) in (0, 2)
    assert "one is none" in capsys.readouterr().out


def test_resumed_run_knows_the_new_folder_from_then_on(moved):
    assert main(["train", "run", "train.kimg=0.024", "--code", "new place"]) == 0
    assert "../new place/wgan.py" in Path("run/config.yaml").read_text()
    assert main(["sample", "run", "--num", "2", "--trust"]) == 0


@pytest.mark.parametrize("verb", ["sample", "resume"])
def test_moved_code_that_has_changed_needs_trust(moved, verb, capsys):
    (moved / "wgan.py").write_text(NETS + "\n# another comment\n")
    assert main([*VERBS[verb], "--code", "new place"]) == 2
    error = capsys.readouterr().err
    assert "sha256" in error and "pass --trust" in error and "\n" not in error.strip()
    assert main([*VERBS[verb], "--code", "new place", "--trust"]) == 0


CODES = ("text", 3, None, [["a"]], {"wgan.py": 3}, {"wgan.py": {}})


@pytest.mark.parametrize("about", [{}, *({"code": code} for code in CODES)])
def test_record_without_the_content_of_the_code_allows_nothing_but_trust(moved, about, capsys):
    """Of an earlier version, or written by someone else."""
    Path("run/environment.json").write_text(json.dumps(about))
    assert main([*VERBS["sample"], "--code", "new place"]) == 2
    assert "pass --trust" in capsys.readouterr().err
    assert main([*VERBS["sample"], "--code", "new place", "--trust"]) == 0


def test_code_in_a_folder_below_is_found_where_it_lay_before(moved):
    (moved / "nets").mkdir()
    (moved / "wgan.py").rename(moved / "nets" / "wgan.py")
    (moved / "wgan.py").write_text("raise AssertionError('the wrong file')")
    assert main([*VERBS["sample"], "--code", "new place"]) == 0


def test_a_folder_without_the_code_says_so(moved, capsys):
    assert main([*VERBS["sample"], "--code", "old"]) == 2
    assert "wgan.py does not exist" in capsys.readouterr().err
    assert main([*VERBS["sample"], "--code", "nowhere"]) == 2
    assert "no folder nowhere" in capsys.readouterr().err


def test_a_file_of_the_folder_under_another_name_is_not_imported(moved):
    """The sha256 of a file that lies in the folder, but that the run calls otherwise."""
    (moved / "other.py").write_text("raise AssertionError('imported')")
    used = code_fingerprints([str(moved / "wgan.py")])
    assert str(moved / "wgan.py") in CodeFolder(moved, used=used)
    assert str(moved / "other.py") not in CodeFolder(moved, used=used)
    (moved / "other.py").write_text(NETS)
    assert str(moved / "other.py") not in CodeFolder(moved, used=used)
    assert "mygan.nets" not in CodeFolder(moved, used=used) and "mygan.nets" in CodeFolder(moved, trust=True)


def test_a_config_that_no_run_has_marked_imports_nothing_from_the_folder(moved, capsys):
    """A folder with a `config.yaml` alone, as someone else may have written it."""
    Path("foreign").mkdir()
    Path("foreign/config.yaml").write_text(RECIPE.replace("wgan.py", "evil.py"))
    (moved / "evil.py").write_text("raise AssertionError('imported')")
    assert main(["sample", "foreign", "--code", "new place"]) == 2
    assert "evil.py is not a file that the run has used" in capsys.readouterr().err


def test_recipe_that_moved_with_its_code_resumes_a_run_elsewhere(moved, capsys):
    """The recipe knows the code; the run recorded what it held."""
    Path("recipe/nets").mkdir(parents=True)
    Path("old/wgan.yaml").rename("recipe/wgan.yaml")
    (moved / "wgan.py").rename("recipe/nets/wgan.py")
    assert main(["train", "recipe/wgan.yaml", "train.kimg=0.024", "--out", "run"]) == 0
    assert "resuming at step 2" in capsys.readouterr().out


@pytest.mark.parametrize("is_original_there", [True, False])
def test_recipe_whose_moved_code_has_changed_resumes_with_code_and_trust_only(moved, is_original_there, capsys):
    """`--trust` alone repeated the message that asked for it."""
    Path("recipe/nets").mkdir(parents=True)
    Path("old/wgan.yaml").rename("recipe/wgan.yaml")
    Path("recipe/nets/wgan.py").write_text(NETS + "\n# another comment\n")
    if is_original_there:
        moved.rename("old/nets")
    command = ["train", "recipe/wgan.yaml", "train.kimg=0.024", "--out", "run"]
    for options in ([], ["--trust"], ["--code", "recipe"]):
        assert main([*command, *options]) == 2
        error = capsys.readouterr().err
        assert "--code DIR --trust" in error and "delete" not in error
    assert main([*command, "--code", "recipe", "--trust"]) == 0


def test_ranks_are_started_with_the_folder_of_the_code(moved, monkeypatch):
    jobs = []
    monkeypatch.setattr(launcher, "launch_ranks", lambda job, interrupt: jobs.append(job) or 0)
    for trust in (False, True):
        code = CodeFolder(moved, trust)
        config = read_recipe("run/config.yaml", ["devices=2"], code)
        start.start_training(RunRequest(config=config, name="run/config.yaml", out=Path("run"), code=code))
    assert jobs[0].words[-2:] == ("--code", "new place")
    assert jobs[1].words[-3:] == ("--code", "new place", "--trust")


def test_run_folder_names_a_program_of_export_that_the_folder_does_not_allow(moved):
    """`--code` is about .py files: a program of torch.export still needs trust."""
    config = Path("run/config.yaml")
    text = config.read_text()
    config.write_text(text.replace("features: null", "features: {name: exported, weights: net.pt2}"))
    assert "net.pt2" in config.read_text()
    with pytest.raises(ConfigError, match=r"program of torch\.export"):
        read_recipe("run/config.yaml", [], CodeFolder(moved))


def test_run_folder_that_moved_without_its_code_resumes_with_the_folder_of_the_code(moved, capsys):
    """Its config then names the code by a path that was never one; its record by the former one."""
    Path("elsewhere/deep").mkdir(parents=True)
    run = Path("run").rename("elsewhere/deep/run")
    command = ["train", str(run), "train.kimg=0.024", "--code", "new place"]
    (moved / "wgan.py").write_text(NETS + "\n# another comment\n")
    assert main(command) == 2
    assert "pass --trust" in capsys.readouterr().err
    (moved / "wgan.py").write_text(NETS)
    assert main(command) == 0
    assert "resuming at step 2" in capsys.readouterr().out


def test_run_folder_that_moved_resumes_from_a_recipe_that_moved_with_its_code(moved, capsys):
    Path("elsewhere").mkdir()
    run = Path("run").rename("elsewhere/run")
    Path("recipe/nets").mkdir(parents=True)
    Path("old/wgan.yaml").rename("recipe/wgan.yaml")
    (moved / "wgan.py").rename("recipe/nets/wgan.py")
    command = ["train", "recipe/wgan.yaml", "train.kimg=0.024", "--out", str(run)]
    Path("recipe/nets/wgan.py").write_text(NETS + "\n# another comment\n")
    assert main(command) == 2
    assert "model.name was" in capsys.readouterr().err
    Path("recipe/nets/wgan.py").write_text(NETS)
    assert main(command) == 0


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/old/a/nets.py", "a"),
        ("/new/place/a/nets.py", "a"),
        ("/new/b/nets.py", "b"),
        ("/nets.py", "ab"),
        ("/old/a/other.py", ""),
    ],
)
def test_recorded_code_is_found_by_the_end_of_its_path(path, found, tmp_path):
    """Two files of one name are told apart by their folders."""
    files = {name: tmp_path / name / "nets.py" for name in "ab"}
    for name, file in files.items():
        file.parent.mkdir()
        file.write_text(name)
    a, b = code_fingerprints(map(str, files.values())).values()
    used = {"/old/a/nets.py": a, "/old/b/nets.py": b, "/old/a/loss.py": b}
    assert "".join(name for name, file in files.items() if has_moved(path, str(file), used)) == found


@pytest.mark.parametrize("verb", ["sample", "export"])
def test_exported_file_opens_by_the_folder_of_its_code(moved, verb, capsys, monkeypatch):
    assert main([*VERBS["export"], "--code", "new place"]) == 0
    Path("machine").mkdir()
    file = Path("exported/generator.safetensors").resolve()
    code = moved.resolve()
    monkeypatch.chdir("machine")
    words = [verb, str(file), *VERBS[verb][2:], "--code"]
    assert main([*words, str(code)]) == 0
    (code / "wgan.py").write_text(NETS + "\n# another comment\n")
    capsys.readouterr()
    assert main([*words, str(code)]) == 2
    assert "pass --trust" in capsys.readouterr().err
    assert main([*words, str(code), "--trust"]) == 0


@pytest.mark.parametrize("recorded", [None, "[]", "{}", '{"wgan.py": 3}', '{"wgan.py": {}}'])
def test_exported_file_without_a_record_of_its_code_needs_trust(moved, recorded, capsys):
    """Of an earlier version, or written by someone else."""
    assert main([*VERBS["export"], "--code", "new place"]) == 0
    file = Path("exported/generator.safetensors")
    with safe_open(file, "pt") as held:
        metadata, weights = held.metadata(), {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    assert json.loads(metadata.pop("code")) == {"wgan.py": code_fingerprints([str(moved / "wgan.py")]).popitem()[1]}
    save_file(weights, file, metadata if recorded is None else metadata | {"code": recorded})
    command = ["sample", str(file), "--num", "2", "--code", "new place"]
    assert main(command) == 2
    assert "pass --trust" in capsys.readouterr().err
    assert main([*command, "--trust"]) == 0


def test_exported_file_whose_code_is_not_found_says_how_to_give_its_folder(moved, capsys):
    assert main([*VERBS["export"], "--code", "new place"]) == 0
    assert main(["sample", "exported/generator.safetensors", "--trust"]) == 2
    assert "for an exported file, or a run whose code has moved: --code DIR" in capsys.readouterr().err
