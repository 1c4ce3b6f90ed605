"""Whether a run told after a tenth of it how long it would still take, within 30 %: python tests/forecast.py RECORD."""

from __future__ import annotations

import json
import sys
from pathlib import Path

lines = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
total = next(line["total_kimg"] for line in lines if line["kind"] == "start")
then = next(line for line in lines if line["kind"] == "step" and line["kimg"] >= total / 10)
end = next(line for line in reversed(lines) if line["kind"] == "end")
left = end["seconds"] - then["seconds"]
error = then["eta_s"] / left - 1
print(f"after {then['seconds']:.0f} s: {then['eta_s']:.0f} s were forecast, it took {left:.0f} s ({error:+.0%})")
sys.exit(abs(error) > 0.3)
