"""``python -m kafka_migration COMMAND PLAN``."""

from kafka_migration.cli.app import main

if __name__ == "__main__":
    main()
