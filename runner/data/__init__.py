"""What is shipped as data: see pod/axolotl_fields.py."""
