"""Schema registries with Confluent's API: what the target's lacks of the source's, and making it there."""
