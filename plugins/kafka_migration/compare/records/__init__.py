"""Record level: through Spark's own Kafka source, sharing no code with the copy."""
