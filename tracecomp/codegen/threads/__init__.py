"""Native code of threads and memory: barriers, waiting, allocation."""
