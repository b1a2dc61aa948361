"""Orchestration only: each flow body reads like the list of its steps."""
