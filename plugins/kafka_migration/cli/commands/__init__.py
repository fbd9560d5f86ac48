"""One module per group of commands. Each command loads the plan, opens a context, calls a phase and renders."""
