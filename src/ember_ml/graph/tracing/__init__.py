"""Tracing: functions over ops become graphs. See graph/exporting.py for the use."""
