"""What each field of schema.graphql stands for."""


def make_schema(catalogue):
    authors, books = catalogue.authors, catalogue.books

    def by_year(author_id=None):
        chosen = [book for book in books.values() if author_id in (None, book["author_id"])]
        return sorted(chosen, key=lambda book: book["year"])

    return {
        "Query": {
            "books": ("Book", lambda _: by_year()),
            "book": ("Book", lambda _, id: books[id]),
            "authors": ("Author", lambda _: list(authors.values())),
            "author": ("Author", lambda _, id: authors[id]),
        },
        "Mutation": {
            "addBook": ("Book", lambda _, title, year, authorId: catalogue.add_book(title, year, authorId)),
        },
        "Book": {
            **_plain("id", "title", "year"),
            "author": ("Author", lambda book: authors[book["author_id"]]),
        },
        "Author": {
            **_plain("id", "name"),
            "books": ("Book", lambda author: by_year(author["id"])),
        },
    }


def _plain(*names):
    return {name: (None, lambda parent, name=name: parent[name]) for name in names}
