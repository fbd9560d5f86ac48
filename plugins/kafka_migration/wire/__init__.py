"""Kafka at the level of record batches, on kafka-python's wire layer. Runs in executors: no airflow, no librdkafka."""
