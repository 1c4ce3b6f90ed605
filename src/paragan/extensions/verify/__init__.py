"""Laws of training on a user's networks (`paragan verify`). For networks from elsewhere, before a long run.

State: on CPUs; the laws for ranks start processes of this machine.
"""
