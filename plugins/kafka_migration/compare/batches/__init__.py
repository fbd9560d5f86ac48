"""Batch level: record batches of both sides, decoded and digested side by side."""
