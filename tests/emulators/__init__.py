"""Local stand-ins for the services that a run talks to, each strict where the real one is."""
