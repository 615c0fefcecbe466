import unittest

from bookshop.api import Api
from bookshop.catalogue import Catalogue


class ApiTest(unittest.TestCase):
    def setUp(self):
        self.api = Api(Catalogue())

    def test_books_are_listed(self):
        status, books = self.api.answer("GET", "/books")
        self.assertEqual((status, len(books)), (200, 6))

    def test_a_book_has_its_number(self):
        status, book = self.api.answer("GET", "/books/2")
        self.assertEqual((status, book["title"]), (200, "Solaris"))

    def test_a_book_that_is_not_there_is_not_found(self):
        self.assertEqual(self.api.answer("GET", "/books/99")[0], 404)

    def test_an_author_has_books(self):
        _, books = self.api.answer("GET", "/authors/2/books")
        self.assertEqual([book["title"] for book in books], ["Solaris", "The Cyberiad"])

    def test_a_book_is_added(self):
        status, book = self.api.answer("POST", "/books", {"title": "Fiasco", "year": 1986, "author_id": 2})
        self.assertEqual((status, book["id"]), (201, 7))

    def test_a_book_of_nobody_is_refused(self):
        status, _ = self.api.answer("POST", "/books", {"title": "Fiasco", "year": 1986, "author_id": 9})
        self.assertEqual(status, 400)
