"""A package for a checkpoint of a family that the zoo knows."""
