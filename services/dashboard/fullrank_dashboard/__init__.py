"""The dashboard: a page that shows runs live."""
