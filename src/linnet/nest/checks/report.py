"""What a check found: steps in order, each with its problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TEXT = 4000  # characters of one message; a package must not flood a terminal
_PROBLEMS = 40


def whole_numbers(found: Mapping[Any, Any]) -> dict[str, int]:
    """What of a mapping is a name of reasonable length with a whole number."""
    items = list(found.items())[:_PROBLEMS]
    return {str(k)[:80]: v for k, v in items if type(v) is int and 0 <= v < 1 << 63}


@dataclass
class Step:
    """One check. `problems` are errors; `notes` are worth saying and fail nothing. A step that
    was `skipped` says why in its detail. `figures` are bytes of the model's weights by dtype and,
    under `parameters`, how many elements they have."""

    name: str
    detail: str = ""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: bool = False
    figures: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Step:
        """From what a process of its own wrote, which may be anything."""

        def texts(value: Any) -> list[str]:
            items = value if isinstance(value, list) else []
            kept = [str(item)[:_TEXT] for item in items[:_PROBLEMS]]
            if len(items) > _PROBLEMS:
                kept.append(f"and {len(items) - _PROBLEMS} more")
            return kept

        figures = record.get("figures")
        return cls(
            str(record.get("step", "?"))[:80],
            str(record.get("detail", ""))[:_TEXT],
            texts(record.get("problems")),
            texts(record.get("notes")),
            bool(record.get("skipped")),
            whole_numbers(figures) if isinstance(figures, dict) else {},
        )


@dataclass
class Report:
    """The steps of one folder."""

    folder: Path
    steps: list[Step] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(step.problems for step in self.steps)

    def text(self) -> str:
        lines = [f"{self.folder}: {'fine' if self.ok else 'refused'}"]
        wide = max((len(step.name) for step in self.steps), default=0) + 2
        for step in self.steps:
            mark = "fails" if step.problems else "skip" if step.skipped else "ok"
            lines.append(f"  {mark:<6}{step.name:<{wide}}{step.detail}".rstrip())
            lines += [_indent(problem, "error: ") for problem in step.problems]
            lines += [_indent(note, "note: ") for note in step.notes]
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "ok": self.ok,
            "steps": [
                {
                    "name": step.name,
                    "detail": step.detail,
                    "skipped": step.skipped,
                    "problems": step.problems,
                    "notes": step.notes,
                }
                for step in self.steps
            ],
        }


def _indent(text: str, mark: str) -> str:
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"        {mark}{first}", *(f"          {line}" for line in rest)])
