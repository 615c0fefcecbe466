"""The shop on the web: the page at /, GraphQL at /graphql."""

import json

from bookshop.graphql import execute
from bookshop.page import render
from bookshop.resolvers import make_schema


def make_server(catalogue):
    schema = make_schema(catalogue)

    def serve(environ, start_response):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/":
            page = render(lambda query: execute(schema, query))
            return _send(start_response, "200 OK", "text/html", page)
        if (method, path) == ("POST", "/graphql"):
            asked = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
            answer = execute(schema, asked["query"], asked.get("variables"))
            return _send(start_response, "200 OK", "application/json", json.dumps(answer))
        return _send(start_response, "404 Not Found", "text/plain", f"there is nothing at {path}\n")

    return serve


def _send(start_response, status, kind, text):
    start_response(status, [("Content-Type", f"{kind}; charset=utf-8")])
    return [text.encode()]
