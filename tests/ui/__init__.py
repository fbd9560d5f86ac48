"""People in front of Airflow: a whole migration through a browser."""
