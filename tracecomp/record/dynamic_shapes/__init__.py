"""One recording for every size: the common form of two recordings, and graphs that compute with padding."""
