"""The native function that checks guards and calls a program."""
