"""Nothing is unpickled, and one place in the house moves weights."""

import ast
import re

from tests.architecture.conftest import last_name

PICKLERS = {"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
# They unpickle what a file or another rank sent.
UNPICKLING = {
    "torch.load",
    "torch.export.load",
    "torch.hub.load",
    "torch.save",
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
    "torch.distributed.rpc",
}
LAST_NAMES = {name.rpartition(".")[2] for name in UNPICKLING}
BROAD = {"Exception", "BaseException"}


def test_nothing_is_unpickled(modules):
    found = [f"{m.at(n).rpartition(':')[0]} {name}" for m in modules for n in m.code for name in pickling(n)]
    allowed = [
        # torch's reader of tensors, with weights_only, for weights of other programs: plain tensors alone
        "src/paragan/checkpoint/weight_files.py torch.load",
        # torch's reader of tensors, with weights_only, for files that are known by their sha256
        "src/paragan/features/base/inception_weights.py torch.load",
        # a file that the user trusts: its settings are refused without `--trust` (config/sections.py)
        "src/paragan/storage/exported_network.py torch.export.load",
    ]
    assert found == allowed


def test_one_place_steps_an_optimiser(modules):
    """`Player` is the only caller: clipping, skipped steps, schedule and EMA live there and nowhere else."""
    places = [m.at(n) for m in modules for n in m.code if isinstance(n, ast.Call) and steps_an_optimiser(n)]
    judge = "src/paragan/features/base/classifier.py"  # it plays no game
    players = [place for place in places if not place.startswith(judge)]
    assert len(players) == 1, places
    assert players[0].startswith("src/paragan/game/")


def test_the_rules_see():
    bad = "import pickle\nfrom torch import load\ntorch.load(f)\nnp.load(f, allow_pickle=True)\ndist.gather_object(x)"
    assert len([name for n in ast.walk(ast.parse(bad)) for name in pickling(n)]) == 5
    for line in ("self.optimizer.step()", "opt.step()", "self.scaler.step(opt)", "optimizers[0].step()"):
        assert steps_an_optimiser(ast.parse(line).body[0].value), line
    for line in ("scheme.step(gan)", "self.schedule.step()", "torch.sum(optimizer)"):
        assert not steps_an_optimiser(ast.parse(line).body[0].value), line


def pickling(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names if a.name.split(".")[0] in PICKLERS]
    if isinstance(node, ast.ImportFrom):
        names = [f"{node.module}.{a.name}" for a in node.names]
        return [n for n in names if n.split(".")[0] in PICKLERS or n in UNPICKLING or n.split(".")[-1] in UNPICKLING]
    if isinstance(node, ast.Attribute) and node.attr in LAST_NAMES:
        return [name for name in (ast.unparse(node), node.attr) if name in UNPICKLING]
    if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        return [] if isinstance(node.value, ast.Constant) and node.value.value is False else ["allow_pickle"]
    return []


def steps_an_optimiser(call: ast.Call) -> bool:
    """`<optimiser>.step(…)`, `<scaler>.step(<optimiser>)`."""
    if not (isinstance(call.func, ast.Attribute) and call.func.attr == "step"):
        return False
    names = re.findall(r"\w+", ast.unparse(call.func.value) + " " + " ".join(map(ast.unparse, call.args)))
    return any(re.search(r"optim|(^|_)opt($|_)|scaler", name.lower()) for name in names)


def test_no_error_of_any_kind_is_swallowed(modules):
    """Who catches every exception raises, or uses what it caught: tells it, or holds it for another thread."""
    found = [m.at(n).rpartition(":")[0] for m in modules for n in m.code if swallows(n)]
    assert found == [
        "src/paragan/engine/multi_writer.py",  # the end of a writer that has failed before, and was reported then
        "src/paragan/evaluation/interval.py",  # half of the images may be too few: then there is no interval
    ]
    for bad in ("try: f()\nexcept Exception: pass", "try: f()\nexcept: g()", "with suppress(Exception): f()"):
        assert any(map(swallows, ast.walk(ast.parse(bad)))), bad
    for good in ("try: f()\nexcept Exception as e: g(e)", "try: f()\nexcept: raise", "with suppress(OSError): f()"):
        assert not any(map(swallows, ast.walk(ast.parse(good)))), good


def swallows(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        is_suppress = last_name(node.func) == "suppress"
        return is_suppress and any(ast.unparse(kind) in BROAD for kind in node.args)
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    if not any(kind is None or ast.unparse(kind) in BROAD for kind in kinds):
        return False
    inside = [each for statement in node.body for each in ast.walk(statement)]
    names = {each.id for each in inside if isinstance(each, ast.Name)}
    return node.name not in names and not any(isinstance(each, ast.Raise) for each in inside)


def test_every_http_server_is_bounded(modules):
    """A deadline for each request, a bound of requests, and daemon threads: no client keeps a run from ending."""
    bases = {"core": "src/paragan/core/http_server.py"}.values()
    for module in modules:
        for node in module.code:
            if not isinstance(node, ast.ClassDef) or module.at(node).rpartition(":")[0] in bases:
                continue
            names = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
            if any(name.endswith(("HTTPServer", "WSGIServer", "TCPServer", "ThreadingMixIn")) for name in names):
                assert "BoundedServer" in names, module.at(node)
            if any(name.endswith("RequestHandler") for name in names):
                assert "BoundedHandler" in names, module.at(node)


def test_hashes_are_checked_by_one_function(modules):
    """A sha256 from outside may become a path: `core.files.is_sha256` says whether it is one."""
    patterns = [m.at(n) for m in modules for n in m.code if isinstance(n, ast.Constant) and "{64}" in str(n.value)]
    assert [place.rpartition(":")[0] for place in patterns] == ["src/paragan/core/files.py"]


def test_json_of_files_is_read_by_one_function(modules):
    """100 kB of brackets are a `RecursionError`, which is no `ValueError`: `core.files.read_json_file` knows."""
    found = [m.at(n).rpartition(":")[0] for m in modules for n in m.code if reads_json_of_a_file(n)]
    assert found == [
        "src/paragan/checkpoint/manifest.py",  # refuses a key that is there twice
        "src/paragan/core/files.py",
        "src/paragan/features/_packaged.py",  # of this package
    ]
    for line in ("json.loads(path.read_text())", "json.loads(read_bytes(path, 9), strict=True)", "json.load(file)"):
        assert reads_json_of_a_file(ast.parse(line).body[0].value), line
    assert not reads_json_of_a_file(ast.parse("json.loads(text)").body[0].value)


def reads_json_of_a_file(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("json.load", "json.loads"):
        return False
    readers = {"read_bytes", "read_text", "read"}
    inside = [last_name(each.func) for each in ast.walk(node.args[0]) if isinstance(each, ast.Call)]
    return node.func.attr == "load" or not readers.isdisjoint(inside)
