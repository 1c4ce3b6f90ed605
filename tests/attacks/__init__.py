"""Seeded attacks: kills at every file-system call, damaged run folders, fuzzed input. SECURITY.md states the figures."""
