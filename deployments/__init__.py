"""Registration, the control side's processes, and the command line."""
