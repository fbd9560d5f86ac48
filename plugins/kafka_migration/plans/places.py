"""Where plans, reports and the approval key are, each named once. Imports nothing, so help costs nothing."""

from __future__ import annotations

#: Where plans are, if not in the checkout.
PLANS_DIRECTORY = "KAFKA_MIGRATION_PLANS"
#: The connection whose password is the key that signs approvals.
APPROVALS_CONNECTION = "kafka_migration_approvals"
#: Where reports and Data Docs go, if not into reports/: a folder or a store's URL, which every worker and the API
#: server must reach.
REPORTS_DIRECTORY = "KAFKA_MIGRATION_REPORTS_DIR"
