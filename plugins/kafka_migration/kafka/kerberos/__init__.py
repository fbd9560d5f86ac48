"""Clients for SASL GSSAPI, which confluent-kafka's wheels do not have (docs/adr/0019-kerberos.md)."""
