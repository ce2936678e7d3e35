"""Recorded graphs, replayed through passes and code generation: a refactor must change no program and no bit."""
