"""Images on request over HTTP (`paragan serve`), and latents of given images (`paragan project`). For demonstrations.

State: tested on one machine. Not made for the open internet.
"""
