"""The outside judge of a migration: it knows clients' notes alone, and nothing of what moved them.

Clients note every send, acknowledgement, receipt and commit (`checker.notes`, `checker.recorder`); `checker.verdict`
decides from a folder of such notes whether records were lost, doubled, reordered and so on. docs/checker.md has the
format, the definition of each fault, and the model. Nothing here imports the library, the demo, or a Kafka client.
"""
