"""The intermediate representations: types, graph, loops, and their printers, parsers and interpreters."""
