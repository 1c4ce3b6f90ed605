"""JSON schema of the document of `paragan plan --json`."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from paragan.extensions.planning.plan import Plan


def schema() -> dict[str, Any]:
    """The schema, of draft 2020-12: every field of the document is required, no other is allowed."""
    found = TypeAdapter(Plan).json_schema(mode="serialization")
    for part in (found, *found["$defs"].values()):
        part["required"] = list(part["properties"])
        part["additionalProperties"] = False
    found["properties"]["version"] = {"const": Plan.version}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def page() -> str:
    """The schema as a file."""
    return json.dumps(schema(), indent=1) + "\n"
