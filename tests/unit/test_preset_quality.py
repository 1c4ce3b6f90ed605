"""`benchmarks.preset_quality`: rows differ in what they name only, and differences are of equal seeds."""

from benchmarks import preset_quality as quality

DIGITS = quality.TABLES["digits"]


def test_summary_takes_differences_seed_by_seed():
    def runs(*ends):
        points = [[{"step": 0, "fd[judge]": 9.0}, {"step": 500, "fd[judge]": end}] for end in ends]
        return [{"points": of, "lags": {"g": {"1": 2}, "d": {}}, "wall_s": 1.0, "config": ""} for of in points]

    found = quality.summary(DIGITS, {"sync": runs(1.0, 2.0, 3.0), "preset": runs(1.5, 2.5, 3.5)})
    less = found["rows"]["preset"]["less sync"]
    assert less["mean"] == 0.5
    assert less["half"] == 0.0
    assert not less["is zero within it"]
    assert less["its mean is within the interval of sync"]
    assert found["rows"]["preset"]["lags"] == {"g": {"1": 6}, "d": {}}
    assert [point["step"] for point in found["rows"]["sync"]["curve"]] == [0, 500]
