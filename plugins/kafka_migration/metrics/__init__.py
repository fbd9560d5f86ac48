"""Where migrations stand, as metrics for Prometheus."""
