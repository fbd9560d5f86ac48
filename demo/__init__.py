"""The embedded default: brokers, clients and the script of a migration that anyone can watch on one machine.

Nothing in the library imports from here.
"""
