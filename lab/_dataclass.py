"""``dataclass`` for the modules that every ``lab up`` imports; for type checkers the usual one.

For a frozen class with slots the standard library compiles six methods when the class is defined
(one by one before Python 3.13): for the 170 classes of ``lab up``, a third of its time. Here
``__init__`` is compiled for the first instance, and the other methods need not be compiled.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """As :func:`dataclasses.dataclass`; quick to define if it is frozen and has slots.

        Fields that ``__init__`` does not take, or by keyword alone, are for the usual one.
        """
        if cls is None:
            return partial(dataclass, **options)
        if options != {"frozen": True, "slots": True} or hasattr(cls, "__post_init__"):
            return dataclasses.dataclass(cls, **options)
        cls.__doc__ = cls.__doc__ or cls.__name__  # else computed from the signature
        own = vars(cls).keys()
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
        for method in _methods(made):
            if method.__name__ not in own:
                setattr(made, method.__name__, method)
        return made


def _methods(cls: Any) -> Iterable[Callable[..., Any]]:
    """The methods of a frozen dataclass with slots, as :mod:`dataclasses` has them."""
    fields = dataclasses.fields(cls)
    compared = [field.name for field in fields if field.compare]
    values = attrgetter(*compared) if compared else lambda _: ()

    def __init__(self: object, *positional: object, **named: object) -> None:  # noqa: N807
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *positional, **named)

    def __repr__(self: object) -> str:  # noqa: N807
        shown = (f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(values(self) == values(other))

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    def __getstate__(self: object) -> list[object]:  # noqa: N807
        return [getattr(self, field.name) for field in fields]

    def __setstate__(self: object, state: list[object]) -> None:  # noqa: N807
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    return (
        *(__init__, __repr__, __eq__, __hash__, __getstate__, __setstate__),
        *(__setattr__, __delattr__),
    )


def __setattr__(_self: object, name: str, _value: object) -> NoReturn:  # noqa: N807
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(_self: object, name: str) -> NoReturn:  # noqa: N807
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _compile_init(cls: Any) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": dataclasses.MISSING}
    parameters, body = ["self"], []
    for field in dataclasses.fields(cls):
        assert field.init, f"{cls}: import dataclass from dataclasses"
        assert not field.kw_only, f"{cls}: import dataclass from dataclasses"
        name, default = field.name, ""
        if field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"], default = field.default_factory, "=_MISSING"
            body.append(f"if {name} is _MISSING: {name} = _make_{name}()")
        elif field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"], default = field.default, f"=_default_{name}"
        parameters.append(f"{name}{default}")
        body.append(f"_set(self, {name!r}, {name})")
    source = "\n ".join((f"def __init__({', '.join(parameters)}):", *body, "pass"))
    exec(source, scope)  # noqa: S102  as the standard library does
    method: Callable[..., None] = scope["__init__"]
    method.__qualname__ = f"{cls.__qualname__}.__init__"
    return method
