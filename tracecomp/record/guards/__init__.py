"""What must hold for a recording to be used again, and how it was found out."""
