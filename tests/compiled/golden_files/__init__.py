"""Program files of every release, one folder each; ``python -m tests.compiled.golden_files`` makes this release's.

They are kept for ever: later releases load them, with the same bits, for as long as ``docs/program-files.md`` says.
"""
