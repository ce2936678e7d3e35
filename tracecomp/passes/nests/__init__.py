"""The loop nest of a group of nodes, before it is scheduled."""
