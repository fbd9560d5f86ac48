"""Waves: which topics and groups of a plan move together, in which order, and how large each wave is."""
