"""The document of a plan: valid by its schema."""

import json
from pathlib import Path

import pytest

from tests.extensions.planning.test_plan import SMALL, planned
from tests.marks import slow


def assert_valid(value, schema, root):
    """By JSON Schema, of what the schema of the plan uses."""
    if "$ref" in schema:
        return assert_valid(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        kinds = [kind for kind in schema["anyOf"] if (kind.get("type") == "null") == (value is None)]
        return assert_valid(value, kinds[0], root)
    if "const" in schema:
        assert value == schema["const"]
        return None
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "null": type(None)}
    assert isinstance(value, types[schema["type"]]), (value, schema)
    if schema["type"] == "array":
        for item in value:
            assert_valid(item, schema["items"], root)
    for name, kind in schema.get("properties", {}).items():
        assert_valid(value[name], kind, root)
    assert schema.get("additionalProperties") is not False or set(value) == set(schema["properties"])
    return None


@pytest.mark.parametrize("arguments", [{}, slow({"memory_gb": 0.05, "is_measured": True})])
def test_document_is_valid_by_the_schema(arguments):
    schema = json.loads((Path(__file__).resolve().parents[3] / "docs" / "plan.schema.json").read_text())
    document = json.loads(json.dumps(planned(SMALL["mlp"], **arguments).to_dict()))
    assert_valid(document, schema, schema)
    with pytest.raises(AssertionError):
        assert_valid(document | {"version": 1}, schema, schema)
    with pytest.raises(AssertionError):
        assert_valid(document | {"speed": 1}, schema, schema)
    with pytest.raises(AssertionError):
        assert_valid(document | {"data": document["data"] | {"batch": "64"}}, schema, schema)
