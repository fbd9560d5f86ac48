"""The words and the arithmetic of a migration. Imports nothing of ours."""
