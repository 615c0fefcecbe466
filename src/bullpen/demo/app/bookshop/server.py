"""The shop on the web: the page at /, the API below it."""

import json

from bookshop.api import Api
from bookshop.page import render


def make_server(catalogue):
    api = Api(catalogue)

    def serve(environ, start_response):
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == "/":
            return _send(start_response, 200, "text/html", render(api))
        body = json.loads(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)) or "null")
        status, document = api.answer(method, path, body)
        return _send(start_response, status, "application/json", json.dumps(document))

    return serve


def _send(start_response, status, kind, text):
    reasons = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found"}
    start_response(f"{status} {reasons[status]}", [("Content-Type", f"{kind}; charset=utf-8")])
    return [text.encode()]
