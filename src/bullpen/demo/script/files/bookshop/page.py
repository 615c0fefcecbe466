"""The front page: every book with its author, the oldest first."""

from html import escape

QUERY = "{ books { title year author { name } } }"


def render(ask):
    """One request for everything."""
    rows = [
        f"<li>{escape(book['title'])}, {escape(book['author']['name'])}, {book['year']}</li>"
        for book in ask(QUERY)["data"]["books"]
    ]
    return "<h1>Bookshop</h1>\n<ul>\n" + "\n".join(rows) + "\n</ul>\n"
