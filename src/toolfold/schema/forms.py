"""Small forms that a server asks a person to fill in: MCP's flat schemas of plain values.

What a server sends is read into our own shapes, with limits on everything, and written anew for whoever shows it: no
part of a server's schema is passed on as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, cast
from urllib.parse import urlsplit

import msgspec

from toolfold.errors import InvalidRequest
from toolfold.schema.text import one_line

FIELDS = 20
OPTIONS = 100
NAME_CHARS = 100
_TITLE_CHARS = 100
_DESCRIPTION_CHARS = 300
VALUE_CHARS = 4000
"""Characters of one value."""
_URL_CHARS = 2000
_LARGEST = 1e300
_URL = re.compile(r"https?://[!-~]+")

Kind = Literal["string", "number", "integer", "boolean", "choice", "choices"]
Value = str | int | float | bool | list[str]


class UnsupportedFormError(Exception):
    """The server asks for something that is no flat form of plain values, or too much of it."""


class InvalidValueError(InvalidRequest):
    """A value is not what its field takes; the message says what it takes."""


class Option(msgspec.Struct, frozen=True):
    value: str
    label: str


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One value that is asked for. `name` is the server's own; the other texts are one visible line each."""

    name: str
    kind: Kind = "string"
    title: str = ""
    description: str = ""
    required: bool = False
    default: Value | None = None
    options: tuple[Option, ...] = ()
    """For `choice` (one of them) and `choices` (any number)."""
    format: str = ""
    """Of a string: `email`, `uri`, `date` or `date-time`; empty for any text."""
    least: float | None = None
    """The smallest number, or the fewest characters or choices."""
    most: float | None = None

    @property
    def label(self) -> str:
        return self.title or one_line(self.name, _TITLE_CHARS)

    def parse(self, text: str) -> Value:
        """The value that a person typed; raises InvalidValueError."""
        match self.kind:
            case "boolean":
                if (word := text.strip().lower()) in ("y", "yes", "true", "on", "1"):
                    return True
                if word in ("n", "no", "false", "off", "0"):
                    return False
                raise self._invalid("yes or no")
            case "number" | "integer":
                try:
                    value = int(text) if self.kind == "integer" else float(text)
                except ValueError:
                    raise self._invalid("a whole number" if self.kind == "integer" else "a number") from None
                return self.check(value)
            case "choice":
                return self.check(self._chosen(text))
            case "choices":
                return self.check([self._chosen(each) for each in text.split(",") if each.strip()])
            case "string":
                return self.check(text)

    def _chosen(self, text: str) -> str:
        """An option by its number, its value or its label."""
        word = text.strip()
        if word.isdecimal() and 1 <= int(word) <= len(self.options):
            return self.options[int(word) - 1].value
        return next((each.value for each in self.options if word in (each.value, each.label)), word)

    def check(self, value: Any) -> Value:
        """`value`, if the field takes it; raises InvalidValueError."""
        match self.kind, value:
            case "boolean", bool():
                return value
            case "integer", int() if not isinstance(value, bool):
                return cast("int", self._measured(value, value, "number"))
            case "integer", float() if value.is_integer():
                return cast("int", self._measured(int(value), value, "number"))
            case "number", int() | float() if not isinstance(value, bool) and value - value == 0:
                return cast("float", self._measured(value, value, "number"))
            case "string", str() if len(value) <= VALUE_CHARS:
                return cast("str", self._measured(self._formatted(value), len(value), "text"))
            case "choice", str() if any(value == each.value for each in self.options):
                return value
            case "choices", [*several] if all(isinstance(each, str) for each in several):
                chosen = cast("list[str]", list(dict.fromkeys(several)))
                if {*chosen} <= {each.value for each in self.options}:
                    return cast("list[str]", self._measured(chosen, len(chosen), "list"))
            case _:
                pass
        if self.options:
            raise self._invalid("one of " + ", ".join(each.label for each in self.options[:10]))
        raise self._invalid({"boolean": "yes or no", "string": "a text"}.get(self.kind, f"a {self.kind}"))

    def _measured(self, value: Value, size: float, what: str) -> Value:
        unit = {"number": "", "text": " characters", "list": " choices"}[what]
        if self.least is not None and size < self.least:
            raise self._invalid(f"at least {self.least:g}{unit}")
        if self.most is not None and size > self.most:
            raise self._invalid(f"at most {self.most:g}{unit}")
        return value

    def _formatted(self, text: str) -> str:
        try:
            match self.format:
                case "email":
                    name, at, host = text.rpartition("@")
                    valid = bool(at and name and host) and not re.search(r"\s", text)
                case "uri":
                    valid = bool(urlsplit(text).scheme)
                case "date":
                    valid = bool(date.fromisoformat(text))
                case "date-time":
                    valid = "T" in text.upper() and bool(datetime.fromisoformat(text))
                case _:
                    valid = True
        except ValueError:
            valid = False
        if not valid:
            raise self._invalid(f"a valid {self.format}")
        return text

    def _invalid(self, wanted: str) -> InvalidValueError:
        return InvalidValueError(f"{self.label} must be {wanted}.")

    @property
    def schema(self) -> dict[str, Any]:
        """As MCP writes it."""
        schema: dict[str, Any] = {"type": self.kind}
        least, most = "minimum", "maximum"
        if self.kind == "choice":
            schema = {"type": "string", "enum": [each.value for each in self.options]}
            schema["enumNames"] = [each.label for each in self.options]
        elif self.kind == "choices":
            least, most = "minItems", "maxItems"
            one_of = [{"const": each.value, "title": each.label} for each in self.options]
            schema = {"type": "array", "items": {"anyOf": one_of}}
        elif self.kind == "string":
            least, most = "minLength", "maxLength"
        facts = {"title": self.label, "description": self.description, "format": self.format}
        schema |= {key: text for key, text in facts.items() if text}
        limits = {least: self.least, most: self.most, "default": self.default}
        return schema | {
            key: int(value) if isinstance(value, float) and value.is_integer() else value
            for key, value in limits.items()
            if value is not None
        }


class Form(msgspec.Struct, frozen=True):
    """What a person is asked for: values, or to open an address and come back."""

    fields: tuple[Field, ...] = ()
    url: str = ""

    @property
    def schema(self) -> dict[str, Any]:
        """As MCP writes it."""
        return {
            "type": "object",
            "properties": {field.name: field.schema for field in self.fields},
            "required": [field.name for field in self.fields if field.required],
        }

    def check(self, values: Mapping[str, Any], *, defaults: bool = True) -> dict[str, Value]:
        """The values as the server gets them, with its `defaults` for those that are missing.

        Raises InvalidValueError for a value that its field does not take; what was not asked for is left out.
        """
        checked: dict[str, Value] = {}
        for field in self.fields:
            value = values.get(field.name)
            if value is not None:
                checked[field.name] = field.check(value)
            elif field.default is not None and defaults:
                checked[field.name] = field.default
            elif field.required:
                raise InvalidValueError(f"{field.label} is required.")
        return checked

    def parse(self, texts: Mapping[str, str], *, defaults: bool = True) -> dict[str, Value]:
        """The same for what a person typed; an empty text is no value."""
        typed = {field.name: field.parse(texts[field.name]) for field in self.fields if texts.get(field.name)}
        return self.check(typed, defaults=defaults)


def url_form(url: Any) -> Form:
    """A form that asks to open an address: of the web, and written without anything that cannot be seen."""
    if not isinstance(url, str) or len(url) > _URL_CHARS or not _URL.fullmatch(url):
        raise UnsupportedFormError("it is not an address of the web")
    try:
        named = urlsplit(url).hostname
    except ValueError:
        named = None
    if not named:
        raise UnsupportedFormError("it is not an address of the web")
    return Form(url=url)


def read_form(schema: Any) -> Form:
    """The form that a `requestedSchema` describes; raises UnsupportedFormError."""
    if not isinstance(schema, dict) or not isinstance(cast("dict[str, Any]", schema).get("properties"), dict):
        raise UnsupportedFormError("the schema is not an object with properties")
    facts = cast("dict[str, Any]", schema)
    properties = cast("dict[Any, Any]", facts["properties"])
    if len(properties) > FIELDS:
        raise UnsupportedFormError(f"it has more than {FIELDS} fields")
    required = facts.get("required")
    names = cast("list[Any]", required) if isinstance(required, list) else []
    return Form(tuple(_field(name, field, name in names) for name, field in properties.items()))


def _field(name: Any, schema: Any, required: bool) -> Field:
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS or not isinstance(schema, dict):
        raise UnsupportedFormError("a field has no name, a long one, or no schema")
    facts = cast("dict[str, Any]", schema)
    kind, options, limits = _kind(name, facts)
    field = Field(
        name=name,
        kind=kind,
        title=_text(facts.get("title"), _TITLE_CHARS),
        description=_text(facts.get("description"), _DESCRIPTION_CHARS),
        required=required,
        options=options,
        format=_text(facts.get("format"), 20) if kind == "string" else "",
        least=_number(facts.get(limits[0])),
        most=_number(facts.get(limits[1])),
    )
    try:
        default = None if facts.get("default") is None else field.check(facts["default"])
    except InvalidValueError:
        default = None
    return msgspec.structs.replace(field, default=default)


def _kind(name: str, schema: dict[str, Any]) -> tuple[Kind, tuple[Option, ...], tuple[str, str]]:
    match schema.get("type"):
        case "string" if "enum" in schema or "oneOf" in schema:
            return "choice", _options(name, schema), ("", "")
        case "string":
            return "string", (), ("minLength", "maxLength")
        case "number":
            return "number", (), ("minimum", "maximum")
        case "integer":
            return "integer", (), ("minimum", "maximum")
        case "boolean":
            return "boolean", (), ("", "")
        case "array" if isinstance(schema.get("items"), dict):
            return "choices", _options(name, schema["items"]), ("minItems", "maxItems")
        case _:
            raise UnsupportedFormError(f"field {one_line(name, 60)} is no text, number, yes or no, or choice")


def _options(name: str, schema: dict[str, Any]) -> tuple[Option, ...]:
    values: Any = schema.get("enum")
    labels: Any = schema.get("enumNames")
    if values is None:
        entries: Any = schema.get("oneOf", schema.get("anyOf"))
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in cast("list[Any]", entries)):
            raise UnsupportedFormError(f"field {one_line(name, 60)} has no list of choices")
        pairs = cast("list[dict[str, Any]]", entries)
        values, labels = [each.get("const") for each in pairs], [each.get("title") for each in pairs]
    if not isinstance(values, list) or not 0 < len(cast("list[Any]", values)) <= OPTIONS:
        raise UnsupportedFormError(f"field {one_line(name, 60)} has no choices, or too many")
    listed = cast("list[Any]", values)
    if not all(isinstance(each, str) and len(each) <= VALUE_CHARS for each in listed):
        raise UnsupportedFormError(f"field {one_line(name, 60)} has a choice that is no text")
    named = cast("list[Any]", labels) if isinstance(labels, list) else []
    titles = [_text(named[index] if index < len(named) else "", _TITLE_CHARS) for index in range(len(listed))]
    return tuple(
        Option(value, title or one_line(value, _TITLE_CHARS) or repr(value))
        for value, title in zip(listed, titles, strict=True)
    )


def _text(value: Any, limit: int) -> str:
    return one_line(value, limit) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST:
        return None
    return float(value)
