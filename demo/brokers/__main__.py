"""`python -m demo.brokers`."""

from demo.brokers.commands import app
from demo.errors import run_or_explain

run_or_explain(app)
