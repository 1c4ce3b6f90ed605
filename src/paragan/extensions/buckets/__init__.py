"""Runs in object stores: `--out s3://BUCKET/RUN`. For machines that may vanish.

State: tested against servers on this machine; never measured on a cloud's own store.
"""
