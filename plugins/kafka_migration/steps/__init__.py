"""The workflow: the table of steps, and the steps that draw on several rooms."""
