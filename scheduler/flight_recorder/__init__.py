"""The last decisions of a process, with all that they were made on: kept in memory, written to a file, made again.

`log` keeps them, `file` is the form in which they leave the process, `replay` makes them again from that file alone.
"""

from scheduler.flight_recorder.log import FlightRecorder

__all__ = ["FlightRecorder"]
