"""SASL GSSAPI: logins from a keytab, and clients that confluent-kafka's wheels do not have (docs/adr/0019-kerberos.md).

Nothing is imported here: executors unpickle a login from this room and carry no confluent-kafka.
"""
