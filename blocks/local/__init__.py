"""The local cloud: pods on this machine, with the boot script and the life of rented ones."""
