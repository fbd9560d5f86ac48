"""Long runs that are commands of their own, not part of the suite."""
