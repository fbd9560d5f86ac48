"""Records sections of batches, decoded into columns: where each record stands, how large it is, and its hash.

By a compiled kernel (:mod:`.compiled`) where numba is installed, or in Python (:mod:`.plain`), with the same results.
"""
