"""Recording a run of a program as a graph."""

from tracecomp.modes import host, scope
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Recording, record

__all__ = ["Recorder", "Recording", "host", "record", "scope"]
