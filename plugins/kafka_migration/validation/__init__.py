"""Validation as a step: what is to be read, where it was pinned, jobs on Spark, and what the verdict rests on."""
