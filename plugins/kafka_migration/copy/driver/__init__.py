"""The driver's part of the copy: which partitions, by which tasks, fenced, watched and ended."""
