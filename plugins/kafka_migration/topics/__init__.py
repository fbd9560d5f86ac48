"""Topics on the target: as declared, created, grown, compared with what is there, restored."""
