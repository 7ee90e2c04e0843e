"""Benchmarks: each measures a ratio, in one run, against a peer that does the same work."""
