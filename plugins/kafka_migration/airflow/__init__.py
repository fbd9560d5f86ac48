"""The workflow in Airflow: operators, triggers and pages, thin around what lies further in."""
