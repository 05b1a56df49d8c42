"""What a registry checks before it takes a package, in a process of its own."""
