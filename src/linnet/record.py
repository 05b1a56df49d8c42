"""Data classes that cost next to nothing to declare.

The checker declares some two hundred small classes. `dataclasses` compiles three methods for
each as it is imported, which takes longer than checking a model. These compile their methods
when the first instance is made. To type checkers, and to `dataclasses.fields` and `replace`,
they are data classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
else:

    def dataclass(cls=None, *, eq=True, frozen=False, slots=False):
        """As `dataclasses.dataclass`, for what the options here say. A field's default may
        be a value or `field(default_factory=…)`."""

        def wrap(cls):
            return _record(cls, eq, frozen, slots)

        return wrap if cls is None else wrap(cls)

    def field(*, default_factory=None, repr=True):
        return _MISSING if default_factory is None else _Factory(default_factory)


class _Factory:
    """The default of a field that is made anew for each instance."""

    def __init__(self, make: Callable[[], Any]):
        self.make = make


_MISSING: Any = object()


class _Fields:
    """`__dataclass_fields__`, built when somebody asks."""

    def __init__(self, types: dict[str, Any], defaults: dict[str, Any]):
        self.types = types
        self.defaults = defaults
        self.built: dict[str, Any] | None = None

    def __get__(self, instance: object, owner: type) -> dict[str, Any]:
        if self.built is None:
            import dataclasses

            self.built = {}
            for name, type in self.types.items():
                default = self.defaults.get(name, _MISSING)
                made: Any
                if default is _MISSING:
                    made = dataclasses.field()
                elif isinstance(default, _Factory):
                    made = dataclasses.field(default_factory=default.make)
                else:
                    made = dataclasses.field(default=default)
                made.name, made.type, made.kw_only = name, type, False
                made._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
                self.built[name] = made
        return self.built


class _Params:
    """What `dataclasses` asks of a base class."""

    def __init__(self, eq: bool, frozen: bool):
        self.init = self.repr = True
        self.order = self.unsafe_hash = False
        self.eq, self.frozen = eq, frozen


def _record(cls: Any, eq: bool, frozen: bool, slots: bool) -> Any:
    own = dict(cls.__annotations__)
    types: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        inherited = base.__dict__.get("__dataclass_fields__")
        if isinstance(inherited, _Fields):
            types |= inherited.types
            defaults |= inherited.defaults
    types |= own
    namespace = dict(cls.__dict__)
    for name in own:
        default = namespace.pop(name, _MISSING)
        if default is not _MISSING:
            defaults[name] = default
    names = tuple(types)
    namespace["__dataclass_fields__"] = _Fields(types, defaults)
    namespace["__dataclass_params__"] = _Params(eq, frozen)
    namespace.setdefault("__match_args__", names)
    methods = ["__init__"]
    if eq and "__eq__" not in namespace:
        methods.append("__eq__")
    if eq:
        if not frozen:
            namespace.setdefault("__hash__", None)
        elif "__hash__" not in namespace:
            methods.append("__hash__")
    if frozen:
        namespace.setdefault("__setattr__", _refuse_setting)
        namespace.setdefault("__delattr__", _refuse_deleting)
        if slots:
            namespace.setdefault("__getstate__", _state)
            namespace.setdefault("__setstate__", _restore)
    namespace.setdefault("__repr__", _repr)
    made: Any = None

    def stub(method: str) -> Callable[..., Any]:
        def first(self: Any, *args: Any, **named: Any) -> Any:
            _compile(made, method, names, defaults, frozen)
            return made.__dict__[method](self, *args, **named)

        return first

    for method in methods:
        namespace[method] = stub(method)
    if slots:  # only a new class can have them
        namespace["__slots__"] = tuple(own)
        namespace.pop("__dict__", None)
        namespace.pop("__weakref__", None)
        made = type(cls)(cls.__name__, cls.__bases__, namespace)
        return made
    made = cls
    for name in own:  # plain defaults stay class attributes, as `dataclasses` leaves them
        if name in cls.__dict__:
            if name not in defaults or isinstance(defaults[name], _Factory):
                delattr(cls, name)
    for name, value in namespace.items():
        if cls.__dict__.get(name, _MISSING) is not value:
            setattr(cls, name, value)
    return made


def _compile(
    cls: Any, method: str, names: tuple[str, ...], defaults: dict[str, Any], frozen: bool
) -> None:
    """Put the real method in the place of the one that calls this."""
    scope: dict[str, Any] = {"_missing": _MISSING, "_set": object.__setattr__}
    if method == "__init__":
        text = _init(cls, names, defaults, frozen, scope)
    elif method == "__eq__":
        own, other = (
            f"({''.join(f'{who}.{name},' for name in names)})" for who in ("self", "other")
        )
        text = (
            "def __eq__(self, other):\n"
            "    if other.__class__ is self.__class__:\n"
            f"        return {own} == {other}\n"
            "    return NotImplemented\n"
        )
    else:
        text = f"def __hash__(self): return hash(({''.join(f'self.{name},' for name in names)}))"
    exec(text, scope)  # the names of fields, which the Python parser has read before
    made = scope[method]
    made.__qualname__ = f"{cls.__qualname__}.{method}"
    type.__setattr__(cls, method, made)


def _init(
    cls: Any, names: tuple[str, ...], defaults: dict[str, Any], frozen: bool, scope: dict[str, Any]
) -> str:
    given = ["_self"]
    lines = []
    for name in names:
        default = defaults.get(name, _MISSING)
        value = name
        if default is _MISSING:
            given.append(name)
        elif isinstance(default, _Factory):
            given.append(f"{name}=_missing")
            scope[f"_make_{name}"] = default.make
            value = f"_make_{name}() if {name} is _missing else {name}"
        else:
            given.append(f"{name}=_default_{name}")
            scope[f"_default_{name}"] = default
        lines.append(f"_set(_self,{name!r},{value})" if frozen else f"_self.{name}={value}")
    if hasattr(cls, "__post_init__"):
        lines.append("_self.__post_init__()")
    body = ";".join(lines or ["pass"])
    return f"def __init__({','.join(given)}): {body}"


def _repr(self: Any) -> str:
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _refuse_setting(self: Any, name: str, value: Any) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: Any, name: str) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__match_args__, state):
        object.__setattr__(self, name, value)
