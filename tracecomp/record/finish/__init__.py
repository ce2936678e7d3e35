"""From the state of a recorder at the end of a call to a recording: stages over one draft, in one order."""
