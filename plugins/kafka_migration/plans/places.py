"""Where plans and reports are: environment variables, each named once. Imports nothing, so help costs nothing."""

from __future__ import annotations

#: Where plans are, if not in the checkout.
PLANS_DIRECTORY = "KAFKA_MIGRATION_PLANS"
#: Where reports and Data Docs go, if not into reports/: a folder or a store's URL, which every worker and the API
#: server must reach.
REPORTS_DIRECTORY = "KAFKA_MIGRATION_REPORTS_DIR"
