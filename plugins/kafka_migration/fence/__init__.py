"""The fence: what keeps clients from a cluster while they are moved; checked, applied, proved, and lifted."""
