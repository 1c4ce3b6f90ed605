"""The protocol of feature extractors and their weights, which other rooms use."""
