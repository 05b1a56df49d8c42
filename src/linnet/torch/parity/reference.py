"""The reference: a model of transformers, loaded from the same checkpoint, and what its modules
return."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.errors import BackendError, WeightsError

# What our entries call their arguments, and what transformers does.
INPUTS = {"tokens": "input_ids", "types": "token_type_ids", "images": "pixel_values"}
# Arguments that say how much of each row counts. A whole row needs no mask there.
LENGTHS = "lengths"


class Reference:
    """`tensors` maps a tensor's name in the model to its storage; tied ones share one. `inputs`
    are what the watched modules were given last: the first tensor among their arguments."""

    def __init__(self, model: Any):
        self.model = model
        self.tuples: set[str] = set()
        self.inputs: dict[str, Tensor] = {}
        self.values: dict[str, Tensor] = {
            name: tensor
            for name, tensor in [
                *model.named_parameters(remove_duplicate=False),
                *model.named_buffers(remove_duplicate=False),
            ]
            if tensor.numel()
        }
        self.tensors: dict[str, int] = {
            name: tensor.data_ptr() for name, tensor in self.values.items()
        }

    @property
    def name(self) -> str:
        """What the values are compared with, and its version."""
        import transformers

        return f"transformers {transformers.__version__}"

    @classmethod
    def open(cls, folder: Path, dtype: torch.dtype) -> Reference:
        """From a folder with config.json and safetensors; no code of the checkpoint is run.

        Raises WeightsError or BackendError.
        """
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        if not (folder / "config.json").is_file():
            raise WeightsError(
                f"{folder}: no config.json; the reference is made from it, beside safetensors"
            )
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
            names = config.architectures or []
            kind = next((k for k in (getattr(transformers, n, None) for n in names) if k), None)
            if kind is None:
                raise BackendError(
                    f"{folder}/config.json: transformers {transformers.__version__} has no "
                    f"architecture {' or '.join(names) or '(none named)'}"
                )
            model = kind.from_pretrained(
                folder, dtype=dtype, local_files_only=True, use_safetensors=True,
                attn_implementation="eager",
            )  # fmt: skip
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise BackendError(f"{folder}: transformers cannot load it: {first}") from error
        return cls(model.eval())

    def modules(self) -> dict[str, frozenset[int]]:
        """Each module that holds tensors, with their storages."""
        held: dict[str, set[int]] = {}
        for name, storage in self.tensors.items():
            parts = name.split(".")
            for length in range(len(parts)):
                held.setdefault(".".join(parts[:length]), set()).add(storage)
        return {name: frozenset(found) for name, found in held.items()}

    def run(
        self, inputs: Mapping[str, Any], watched: Collection[str]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The result, and what each watched module returned last: a tensor, or the first of a
        tuple, whose names are then in `tuples`."""
        arguments: dict[str, Any] = {}
        for name, value in inputs.items():
            if name in INPUTS:
                arguments[INPUTS[name]] = value
            elif name != LENGTHS:
                raise BackendError(
                    f"the entry's argument `{name}` has no counterpart in transformers that is "
                    f"known here; known are {', '.join((*INPUTS, LENGTHS))}"
                )
        seen: dict[str, Tensor] = {}
        handles = []
        for name, module in self.model.named_modules():
            if name in watched:
                hook = self.hook(name, seen)
                handles.append(module.register_forward_hook(hook, with_kwargs=True))
        try:
            with torch.no_grad():
                try:
                    output = self.model(**arguments, use_cache=False)
                except TypeError:
                    output = self.model(**arguments)
        finally:
            for handle in handles:
                handle.remove()
        for key in ("logits", "logits_per_image", "last_hidden_state"):
            found = getattr(output, key, None)
            if isinstance(found, Tensor):
                return found, seen
        raise BackendError(f"the reference returns {type(output).__name__}, which has no logits")

    def hook(self, name: str, seen: dict[str, Tensor]) -> Any:
        def hook(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            if isinstance(output, (tuple, list)):
                self.tuples.add(name)
            first = output[0] if isinstance(output, (tuple, list)) and output else output
            if isinstance(first, Tensor):
                seen[name] = first.detach().clone()
            for value in (*args, *kwargs.values()):
                if isinstance(value, Tensor):
                    self.inputs[name] = value.detach().clone()
                    break

        return hook
