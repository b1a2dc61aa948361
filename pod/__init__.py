"""What runs on the pod beside Prefect; the modules need nothing but the standard library."""
