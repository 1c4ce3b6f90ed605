"""Adapters: functions of fixed weights with few trained parameters, one file each.

A file has a frozen dataclass `Options`, derived from `_options.AdapterOptions`, and a class
`Adapter(weight, options)`, derived from `layers.adapter.Adapter`. It knows one weight, not the
network.
"""
