"""The CPU backend: entries of an optimized program to C, one native call a step.

`cc` is called here only. Nothing here imports torch: a model hands over addresses, element
types and shapes. Start at `module.NativeModule`.
"""
