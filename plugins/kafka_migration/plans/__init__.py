"""The plan file and everything that can be wrong with it. A plan is read whole, refused whole, and never guessed at."""
