"""One module opens files for writing: `core/files.py`, which follows no link and leaves no half of a file."""

import ast

import pytest

HOME = "src/paragan/core/files.py"
ALLOWED = {  # (file, what): why it is safe
    ("src/paragan/checkpoint/writer.py", "save_file"): "into a folder that it has just made",
    ("src/paragan/cli/main.py", "open"): "of /dev/null",
    ("src/paragan/core/answering_processes.py", "fdopen"): "of standard output",
    ("src/paragan/core/interrupt.py", "open"): "of /dev/null",
    ("src/paragan/runs/folder.py", "fdopen"): "of the lock that the launcher holds",
    ("src/paragan/runs/folder.py", "link"): "a name that must be new, of the lock that the launcher holds",
}
WRITING = {
    *("write_text", "write_bytes", "touch", "hardlink_to", "symlink_to"),
    *("copyfile", "copy2", "copytree", "extract", "extractall", "unpack_archive", "make_archive"),
    *("save_file", "serialize_file", "savez", "savez_compressed", "savetxt", "tofile", "memmap"),
    *("NamedTemporaryFile", "SpooledTemporaryFile", "mktemp", "FileHandler"),
}
OS_WRITING = {"open", "fdopen", "replace", "link", "symlink", "mkfifo", "mknod", "truncate"}


def test_one_module_opens_files_for_writing(modules):
    found = {
        (m.at(node).rpartition(":")[0], what): m.at(node) for m in modules for node in m.code for what in writing(node)
    }
    places = {at for (file, what), at in found.items() if file != HOME and (file, what) not in ALLOWED}
    assert places == set(), "write through paragan.core.files"
    assert set(ALLOWED) <= set(found), "an exception that is no longer needed"


def test_one_function_removes_folders(modules):
    """`core.files.remove_tree` follows no link and does not wait for a pipe, as `shutil.rmtree` does."""
    places = [m.at(n) for m in modules for n in m.code if isinstance(n, ast.Attribute) and n.attr == "rmtree"]
    assert [place.rpartition(":")[0] for place in places] == [HOME]


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "open(path, chosen)",
        "path.open('x')",
        "path.open(mode='r+b')",
        "path.write_text(page)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "os.replace(temporary, path)",
        "save_file(tensors, path)",
        "np.savez(path, x=x)",
        "shutil.copyfile(a, b)",
        "gzip.open(path, 'wb')",
    ],
)
def test_the_rule_sees(line):
    assert list(writing(ast.parse(line).body[0].value))


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'rb')",
        "path.open()",
        "path.open('rb')",
        "text.replace('a', 'b')",
        "write_text(path, page)",
        "archive.open(info)",
        "os.open(path, os.O_RDONLY)",
    ],
)
def test_the_rule_lets_reading_pass(line):
    assert not list(writing(ast.parse(line).body[0].value))


def writing(node: ast.AST) -> list[str]:
    """What this call opens, makes or replaces on disk; empty where it only reads."""
    if not isinstance(node, ast.Call):
        return []
    function = node.func
    if isinstance(function, ast.Name):
        return [function.id] if function.id in WRITING - {"write_text", "write_bytes"} or _opens(node, 1) else []
    if not isinstance(function, ast.Attribute):
        return []
    owner, name = ast.unparse(function.value), function.attr
    if owner == "os":
        reads = name == "open" and ast.unparse(node.args[1]) == "os.O_RDONLY"
        return [name] if name in OS_WRITING and not reads else []
    if owner == "files":
        return []
    position = 1 if owner in ("gzip", "bz2", "lzma", "io", "tarfile") else 0
    return [name] if name in WRITING or _opens(node, position) else []


def _opens(call: ast.Call, position: int) -> bool:
    """Whether this is an `open` with another mode than reading. position: of the mode among the arguments."""
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] or call.args[position : position + 1]
    if name != "open" or not modes:
        return False
    if not isinstance(modes[0], ast.Constant):
        return position == 1  # of the built-in `open`; `archive.open(member)` takes something else first
    return bool(set(str(modes[0].value)) & set("wax+"))


MAKE_FOLDERS = {  # file: why it need not call `create_subfolder`
    "src/paragan/cli/new.py": "a new folder, which must not exist",
    "src/paragan/checkpoint/writer.py": "a new folder, which must not exist, below one that `check_no_link` has seen",
    "src/paragan/checkpoint/best.py": "as the writer",
    "src/paragan/extensions/buckets/bucket_checkpoints.py": "as the writer",
    "src/paragan/evaluation/reference_features.py": "in the user's cache",
    "src/paragan/features/base/inception_weights.py": "in the user's cache",
    "src/paragan/export/bundle.py": "the folder that the user names, or one that `create_subfolder` returned",
    "src/paragan/export/discriminator.py": "as the bundle",
    "src/paragan/extensions/clusters/cluster_runs.py": "the folder of rendered jobs, which the user names",
    "src/paragan/runs/folder.py": "the run folder",
    "src/paragan/runs/output_folder.py": "the folder that the user names",
    "src/paragan/storage/animation.py": "the parent of the file that the user names",
    "src/paragan/storage/disk_cache.py": "in the user's cache",
    "src/paragan/datasets/_damaged_images.py": "in the user's cache",
    "src/paragan/extensions/buckets/remote_run.py": "the working folder of a run in a bucket, in the user's cache",
    "src/paragan/storage/download.py": "in the user's cache",
    "src/paragan/storage/shard_writer.py": "the folder of shards, which the user names",
    "src/paragan/writers/images.py": "the parent of the file that the user names, or of a folder that was created",
}


def test_folders_below_a_run_come_from_create_subfolder(modules):
    """A foreign run folder may hold a link under any name: nothing is written through it."""
    files = {module.at(node).rpartition(":")[0] for module in modules for node in module.code if makes_folder(node)}
    assert files - {HOME} == set(MAKE_FOLDERS), "use paragan.core.files.create_subfolder, or say here why not"


def makes_folder(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("mkdir", "makedirs")
