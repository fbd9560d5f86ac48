"""Every way in on one side with every way in on the other: see __main__.py."""
