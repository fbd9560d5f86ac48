"""The directed copy of a set of topics: where it begins, whether it runs and keeps up, how it ends."""
