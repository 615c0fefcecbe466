"""The front page: every book with its author, the oldest first."""

from html import escape


def render(api):
    """One request for the books, and one more for the author of each."""
    _, books = api.answer("GET", "/books")
    rows = []
    for book in sorted(books, key=lambda book: book["year"]):
        _, author = api.answer("GET", f"/authors/{book['author_id']}")
        rows.append(f"<li>{escape(book['title'])}, {escape(author['name'])}, {book['year']}</li>")
    return "<h1>Bookshop</h1>\n<ul>\n" + "\n".join(rows) + "\n</ul>\n"
