"""A page to use a generator (`paragan serve`), and latents of given images (`paragan project`). For demonstrations.

State: tested on one machine. Not made for the open internet.
"""
