"""Recording a run of a program as a graph."""

from tracecomp.eager.modes import host, scope
from tracecomp.record.capture import record
from tracecomp.record.recorder import Recorder
from tracecomp.record.recording import Recording

__all__ = ["Recorder", "Recording", "host", "record", "scope"]
