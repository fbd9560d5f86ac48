"""Consumer groups: their record, their offsets translated, their move, and where they run afterwards."""
