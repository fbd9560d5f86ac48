"""Is every wrong record found, and called by its name? Faults put into copies that a mirror made; and clean copies, of
which nothing may be said.
"""
