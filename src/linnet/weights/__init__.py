"""Weights on disk as memory: safetensors and GGUF, bindings, and the plan of a load.

Nothing here imports torch, and nothing read here is ever executed.
"""
