"""Benchmarks: asyncdlock, its peers and the raw limit, on the same work, side by side in one run."""
