"""Parse the DAG folder as Airflow does, and say as JSON what came out. A script, so that each parse has a process."""

import json
import sys
import time
from typing import Any

from airflow.dag_processing.dagbag import DagBag

HEAVY = ("pyspark", "great_expectations", "fastapi", "confluent_kafka", "kafka", "pandas")

if __name__ == "__main__":
    began = time.process_time()
    bag = DagBag(sys.argv[1])
    seconds = time.process_time() - began
    dags: dict[str, Any] = bag.dags
    found = {
        "errors": bag.import_errors,
        "seconds": seconds,
        "loaded": [name for name in HEAVY if name in sys.modules],
        "dags": {
            dag.dag_id: {
                "edges": sorted(
                    [before, after] for before in dag.task_ids for after in dag.get_task(before).downstream_task_ids
                ),
                "tasks": {task.task_id: type(task).__name__ for task in dag.tasks},
                "rules": {task.task_id: task.trigger_rule.value for task in dag.tasks},
                "teardowns": {
                    task.task_id: task.on_failure_fail_dagrun
                    and not task.upstream_task_ids & {other.task_id for other in dag.tasks if other.is_setup}
                    for task in dag.tasks
                    if task.is_teardown
                },
                "fields": {task.task_id: list(task.template_fields) for task in dag.tasks},
                "waves": {
                    task.task_id: task.partial_kwargs.get("wave") if task.is_mapped else getattr(task, "wave", "")
                    for task in dag.tasks
                },
                "schedule": getattr(dag.timetable, "expression", None),
                "catchup": dag.catchup,
                "max_active_runs": dag.max_active_runs,
                "params": sorted(dag.params),
                "task_alerts": {
                    task.task_id: [
                        it.has
                        for kind in ("on_failure_callback", "on_retry_callback", "notifiers")
                        for it in (task.partial_kwargs.get(kind) if task.is_mapped else getattr(task, kind, None)) or ()
                    ]
                    for task in dag.tasks
                },
                "alerts": [type(it).__name__ for it in dag.on_failure_callback or ()],
                "deadlines": [[it.interval.total_seconds(), it.callback.path] for it in dag.deadline or ()],
                "in_turn": [
                    task.task_id
                    for task in dag.tasks
                    if task.is_mapped and task.partial_kwargs.get("max_active_tis_per_dagrun") == 1
                ],
                "tags": sorted(dag.tags),
                "has_timeout": dag.dagrun_timeout is not None,
                "doc": dag.doc_md,
            }
            for dag in dags.values()
        },
    }
    print("\n" + json.dumps(found))
