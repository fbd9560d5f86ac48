"""What a DAG is made of: thin tasks around the phases. Imported by DAG files, so nothing heavy at module level."""
