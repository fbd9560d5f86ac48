"""What a migration does: one module a phase, its verbs (check, apply, verify, undo) side by side."""
