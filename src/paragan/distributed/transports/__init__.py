"""Exchange of tensors and messages between processes, threads and accelerators."""
