"""What the application that started the run said about it: `context.user_id`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


class Context(Mapping[str, str]):
    """Texts by name, as attributes and as keys. What the gateway fills in for a program it does not take from here."""

    def __init__(self) -> None:
        self.__dict__["_values"] = {}

    def __getitem__(self, name: str) -> str:
        return self.__dict__["_values"][name]

    def __getattr__(self, name: str) -> str:
        values: dict[str, str] = self.__dict__["_values"]
        if name not in values:
            known = ", ".join(sorted(values)) or "nothing"
            raise AttributeError(f"the run's context has no {name!r}; it has {known}")
        return values[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("the run's context cannot be changed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__["_values"])

    def __len__(self) -> int:
        return len(self.__dict__["_values"])

    def __repr__(self) -> str:
        return f"context({', '.join(f'{name}={value!r}' for name, value in self.items())})"


context = Context()


def set_context(values: dict[str, str]) -> None:
    """Called before each program."""
    context.__dict__["_values"] = values
