"""The two clusters: how to reach them, what is on them, what may be changed there.

Nothing is imported here: executors unpickle tokens and logins from this room and carry no confluent-kafka.
"""
