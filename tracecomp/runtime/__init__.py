"""Running compiled programs: executables, threads, the object cache."""
