"""One recording for every size: what two recordings have in common, and graphs that compute with padding."""
