"""The torch room: programs become torch functions. Torch is imported here and in `serve` only."""

from linnet.torch.load import load
from linnet.torch.module import Model
from linnet.torch.trace import Trace

__all__ = ["Model", "Trace", "load"]
