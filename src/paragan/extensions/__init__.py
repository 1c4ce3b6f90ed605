"""Extensions: many games, large games, other places. The core is complete without this folder.

An extension may import all of paragan; only `api` and `cli` import an extension, when a verb or an argument needs it.
It adds entries of a registry by a folder of the registry's name (`large_models/parallel/tensor.py`), and a kind of run
by `runner.py`. One that has no more users is removed: see CONTRIBUTING.md.
"""
