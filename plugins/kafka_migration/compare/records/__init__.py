"""What only record level needs: Spark's own Kafka source as a third reader, and compacted topics by their keys."""
