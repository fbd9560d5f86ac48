"""Messages of the protocol that kafka-python 3.0 does not know: how newer groups are described (KIP-848, KIP-932).

kafka-python builds a message's class from a JSON file of the message's name in this package.
"""
