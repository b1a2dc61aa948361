"""Thin Prefect tasks, one file a step, over the plain code in runner/ and blocks/."""
