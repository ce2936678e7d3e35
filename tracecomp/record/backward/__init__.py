"""The recorded history as a backward graph, and what forward keeps for it."""
