"""The monitor service and the Prometheus metrics."""
