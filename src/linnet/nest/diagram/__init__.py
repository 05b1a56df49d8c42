"""Pictures of entries: the IR's operations in rows, its values as lines between them."""

from linnet.nest.diagram.graph import Row, Sheet, Wire, draw
from linnet.nest.diagram.svg import Diagram, diagram_of

__all__ = ["Diagram", "Row", "Sheet", "Wire", "diagram_of", "draw"]
