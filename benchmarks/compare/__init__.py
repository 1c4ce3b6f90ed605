"""The same work in paragan and in its peers: one table of ratios, with spread and versions.

The results are in docs/reference/comparison/compare.md.
"""
