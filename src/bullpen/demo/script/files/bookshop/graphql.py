"""GraphQL: reading a query, and executing it over resolvers. Standard library only.

A schema maps each type to its fields, a field to (the type that it leads to, its resolver). A resolver gets what the
field belongs to, and the arguments by name. What fails becomes null, with an entry in `errors` that has its path.
"""

import json
import re

TOKEN = re.compile(r'[\s,]+|#[^\n]*|(?P<token>[{}()\[\]:!=$]|"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?|\w+)')
CONSTANTS = {"true": True, "false": False, "null": None}


class GraphQLError(Exception):
    pass


def execute(schema, text, variables=None):
    errors = []
    try:
        kind, fields = _Reader(text, variables or {}).operation()
    except GraphQLError as error:
        return {"errors": [{"message": str(error)}]}
    data = _select(schema, kind, None, fields, [], errors)
    return {"data": data, "errors": errors} if errors else {"data": data}


# -- executing -----------------------------------------------------------------------------


def _select(schema, kind, parent, fields, path, errors):
    return {key: _resolve(schema, kind, parent, field, [*path, key], errors) for key, *field in fields}


def _resolve(schema, kind, parent, field, path, errors):
    name, arguments, fields = field
    if name == "__typename":
        return kind
    try:
        if name not in schema.get(kind, {}):
            raise GraphQLError(f"{kind} has no field {name}")
        leads_to, resolver = schema[kind][name]
        if bool(leads_to) != bool(fields):
            raise GraphQLError(f"{name} {'needs' if leads_to else 'has no'} fields of its own")
        value = resolver(parent, **arguments)
    except Exception as error:
        message = str(error) if isinstance(error, (GraphQLError, ValueError)) else f"{type(error).__name__}: {error}"
        errors.append({"message": message, "path": path})
        return None
    if not leads_to or value is None:
        return value
    if isinstance(value, list):
        return [_select(schema, leads_to, one, fields, [*path, number], errors) for number, one in enumerate(value)]
    return _select(schema, leads_to, value, fields, path, errors)


# -- reading -------------------------------------------------------------------------------


class _Reader:
    def __init__(self, text, variables):
        self.variables = variables
        self.tokens = []
        at = 0
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise GraphQLError(f"cannot read {text[at : at + 10]!r}")
            self.tokens += [found["token"]] if found["token"] else []
            at = found.end()
        self.tokens.append("")

    def operation(self):
        """What kind it is, and its fields: (key, name, arguments, fields)."""
        kind = "Query"
        if self.tokens[0] in ("query", "mutation"):
            kind = self.take().title()
            while self.tokens[0] not in ("{", ""):  # its name, and the types of its variables
                self.take()
        fields = self.fields()
        if self.tokens[0]:
            raise GraphQLError(f"{self.tokens[0]!r} is too much: one operation at a time")
        return kind, fields

    def fields(self):
        self.take("{")
        fields = [self.field()]
        while self.tokens[0] != "}":
            fields.append(self.field())
        self.take("}")
        return fields

    def field(self):
        key = name = self.name()
        if self.tokens[0] == ":":
            self.take()
            name = self.name()
        arguments = self.arguments() if self.tokens[0] == "(" else {}
        return key, name, arguments, self.fields() if self.tokens[0] == "{" else []

    def arguments(self):
        self.take("(")
        arguments = {}
        while self.tokens[0] != ")":
            name = self.name()
            self.take(":")
            arguments[name] = self.value()
        self.take(")")
        return arguments

    def value(self):
        token = self.take()
        if token == "$":
            return self.variables.get(self.name())
        if token == "[":
            values = []
            while self.tokens[0] != "]":
                values.append(self.value())
            self.take("]")
            return values
        if token in CONSTANTS:
            return CONSTANTS[token]
        if token[:1] in '"-0123456789' and token:
            return json.loads(token)
        raise GraphQLError(f"{token or 'the end'!r} is not a value")

    def name(self):
        token = self.take()
        if not re.fullmatch(r"[A-Za-z_]\w*", token):
            raise GraphQLError(f"expected a name, not {token or 'the end'!r}")
        return token

    def take(self, wanted=None):
        token = self.tokens[0]
        if wanted is not None and token != wanted:
            raise GraphQLError(f"expected {wanted!r}, not {token or 'the end'!r}")
        if token:
            self.tokens.pop(0)
        return token
