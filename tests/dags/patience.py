"""How long tests of whole migrations wait, and an Airflow that does nothing besides."""

#: Far more than a calm machine needs (two minutes for all of it).
PATIENCE_SECONDS = 900
#: No file of DAGs changes meanwhile, and nobody watches metrics.
QUICK = {
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__SCHEDULER__POOL_METRICS_INTERVAL": "3600",
    "AIRFLOW__SCHEDULER__TI_METRICS_INTERVAL": "3600",
    "AIRFLOW__SCHEDULER__DAGRUN_METRICS_INTERVAL": "3600",
}
