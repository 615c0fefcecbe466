"""The REST API: six routes over the catalogue."""

import re


class Api:
    def __init__(self, catalogue):
        self.catalogue = catalogue
        self.routes = [
            ("GET", r"/books", self.list_books),
            ("POST", r"/books", self.add_book),
            ("GET", r"/books/(\d+)", self.get_book),
            ("GET", r"/authors", self.list_authors),
            ("GET", r"/authors/(\d+)", self.get_author),
            ("GET", r"/authors/(\d+)/books", self.list_books_of),
        ]

    def answer(self, method, path, body=None):
        """The status and the document."""
        for verb, pattern, handler in self.routes:
            found = re.fullmatch(pattern, path)
            if found and verb == method:
                numbers = [int(number) for number in found.groups()]
                return handler(*numbers) if verb == "GET" else handler(body or {})
        return 404, {"error": f"there is nothing at {path}"}

    def list_books(self):
        return 200, list(self.catalogue.books.values())

    def add_book(self, body):
        try:
            return 201, self.catalogue.add_book(body["title"], body["year"], body["author_id"])
        except (KeyError, ValueError) as error:
            return 400, {"error": str(error)}

    def get_book(self, number):
        return _found(self.catalogue.books.get(number), f"there is no book {number}")

    def list_authors(self):
        return 200, list(self.catalogue.authors.values())

    def get_author(self, number):
        return _found(self.catalogue.authors.get(number), f"there is no author {number}")

    def list_books_of(self, number):
        return 200, [book for book in self.catalogue.books.values() if book["author_id"] == number]


def _found(document, otherwise):
    return (200, document) if document is not None else (404, {"error": otherwise})
