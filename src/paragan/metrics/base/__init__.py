"""Base classes of metrics, which other rooms use."""
