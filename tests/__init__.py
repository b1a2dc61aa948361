"""Tests, emulators of the services we call, and faults for the trainer."""
