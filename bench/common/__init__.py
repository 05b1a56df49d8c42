"""What the scripts of this folder share."""
