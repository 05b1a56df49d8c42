"""How fast a model runs, beside what the machine can do and beside other engines."""
