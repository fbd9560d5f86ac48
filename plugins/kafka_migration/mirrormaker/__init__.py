"""What a MirrorMaker is configured to do, as plans and connections."""
