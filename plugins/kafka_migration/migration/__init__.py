"""What every step works with: the plan, both clusters, the journal and a clock; and the history of steps."""
