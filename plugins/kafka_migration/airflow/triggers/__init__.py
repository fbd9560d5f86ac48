"""Waiting without holding a worker: what the triggerer runs for the tasks that wait."""
