"""Seeded attacks: kills at file-system calls, damaged run folders, fuzzed input. SECURITY.md states the figures."""
