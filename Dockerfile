# Airflow and Spark for docker-compose.yml: the same requirements.txt and jars.lock as a checkout, nothing else.
# The project's own directories are mounted, not copied: an edited plan or DAG is there at once.
FROM python:3.11-slim-bookworm

# procps: Spark's scripts call ps.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/migration
COPY requirements.txt requirements.lock ./
# What only tests and their tools need does not stay in the image: it is the same lock for all, and a layer of one step.
RUN pip install --no-cache-dir -r requirements.txt \
    && pip uninstall --yes pytest pytest-timeout pytest-xdist ruff mypy types-pyyaml types-psutil playwright axe-playwright-python \
        sphinx myst-parser furo hatchling uv \
    && pip check

COPY jars.lock ./
COPY demo/__init__.py demo/errors.py demo/jars.py demo/java.py demo/
# Into the path that a checkout has them in, by checksum; a repository of your own by build argument.
ARG KAFKA_MIGRATION_MAVEN_REPOSITORY=""
RUN python -c "from demo import jars; jars.paths('spark')"

ENV PYTHONPATH=/opt/migration/plugins:/opt/migration \
    PYSPARK_PYTHON=/usr/local/bin/python \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark \
    AIRFLOW_HOME=/opt/airflow

RUN useradd --create-home --uid 50000 migration \
    && mkdir -p /opt/airflow /opt/migration/reports \
    && chown migration /opt/airflow /opt/migration/reports
USER migration
