"""MonitorService: the status and the iterations of a run, for observers."""
