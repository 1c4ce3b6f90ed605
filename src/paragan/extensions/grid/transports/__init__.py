"""Exchange of genomes and messages between the workers of a grid: gloo, MPI, and the control connection."""
