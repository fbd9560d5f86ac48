"""Benchmarks: commands that measure the mirror against MirrorMaker 2 and against the brokers' own limit."""
