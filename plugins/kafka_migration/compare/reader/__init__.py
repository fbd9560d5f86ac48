"""The validation's own reader of both clusters: it shares no code with the copy."""
