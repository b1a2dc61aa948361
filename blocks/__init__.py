"""Prefect blocks and what they reach: the clouds, and where notices go."""
