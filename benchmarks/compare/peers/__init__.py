"""Adapters: a file is a peer.

`SOURCE` is a file of the peer's checkout, or None if the peer is installed or part of torch. `WORKS` are names of
`benchmarks.compare.works`. `prepare(work, path)` returns a `Prepared`. `FOLDERS` of the checkout are put on `sys.path`;
`STAND_INS` are packages that the peer imports without using them in a step.
"""
