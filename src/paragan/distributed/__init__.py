"""Processes: launch, rendezvous, and exchange of tensors and messages."""
