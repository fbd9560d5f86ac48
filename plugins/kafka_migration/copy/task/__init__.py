"""One Spark task's share of the copy: fetch, check, produce."""
