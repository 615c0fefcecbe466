"""The books of the shop, and who wrote them."""


class Catalogue:
    def __init__(self):
        self.authors = {
            1: {"id": 1, "name": "Ursula K. Le Guin"},
            2: {"id": 2, "name": "Stanislaw Lem"},
            3: {"id": 3, "name": "Octavia E. Butler"},
        }
        self.books = {}
        for title, year, author_id in (
            ("The Left Hand of Darkness", 1969, 1),
            ("Solaris", 1961, 2),
            ("Kindred", 1979, 3),
            ("The Dispossessed", 1974, 1),
            ("The Cyberiad", 1965, 2),
            ("Parable of the Sower", 1993, 3),
        ):
            self.add_book(title, year, author_id)

    def add_book(self, title, year, author_id):
        if author_id not in self.authors:
            raise ValueError(f"there is no author {author_id}")
        book = {"id": len(self.books) + 1, "title": title, "year": year, "author_id": author_id}
        self.books[book["id"]] = book
        return book
