"""JSON schemas of the documents of `paragan plan --json`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from paragan.scaling.grid_forecast import GridPlan
from paragan.scaling.plan import Plan


def schema(kind: type[Plan | GridPlan]) -> dict[str, Any]:
    """The schema, of draft 2020-12: every field of the document is required, no other is allowed."""
    found = TypeAdapter(kind).json_schema(mode="serialization")
    for part in (found, *found["$defs"].values()):
        part["required"] = list(part["properties"])
        part["additionalProperties"] = False
    found["properties"]["version"] = {"const": kind.version}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def page(kind: type[Plan | GridPlan]) -> str:
    """The schema as a file."""
    return json.dumps(schema(kind), indent=1) + "\n"
