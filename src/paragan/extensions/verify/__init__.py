"""Laws of training on a user's own networks (`paragan verify`). For whoever brings networks, before a long run.

State: on CPUs; the laws for ranks start processes of this machine.
"""
