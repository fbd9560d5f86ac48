"""What a migration remembers, in compacted internal topics on the target. No other database (docs/state.md)."""
