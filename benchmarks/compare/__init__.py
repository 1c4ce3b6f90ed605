"""The same work in paragan and in its peers: one table of ratios, with spread and versions (docs/compare.md)."""
