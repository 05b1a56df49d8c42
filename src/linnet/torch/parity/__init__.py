"""Where our values and a reference's first part: block by block, over the same tensors."""
