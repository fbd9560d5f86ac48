"""Positions that are kept outside Kafka's groups: in files, in checkpoints of Spark, in topics of Kafka Connect."""
