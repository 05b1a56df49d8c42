"""The zoo stands at the root of the repository and travels inside the wheel.

An editable install finds it where it stands, so nothing is copied for one.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ZooHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["models"] = "linnet/models"
