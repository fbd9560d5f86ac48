"""Validation on real brokers and a real Spark session; and its arithmetic, alone."""
