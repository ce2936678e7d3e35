"""Functions that treat every element alike, and conversions between types."""
