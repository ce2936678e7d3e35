"""The base class of passes."""
