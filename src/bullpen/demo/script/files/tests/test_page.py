import unittest

from bookshop.catalogue import Catalogue
from bookshop.graphql import execute
from bookshop.page import render
from bookshop.resolvers import make_schema


class PageTest(unittest.TestCase):
    def setUp(self):
        self.queries = []
        self.schema = make_schema(Catalogue())

    def ask(self, query):
        self.queries.append(query)
        return execute(self.schema, query)

    def test_the_page_shows_every_book_with_its_author(self):
        page = render(self.ask)
        self.assertEqual(page.count("<li>"), 6)
        self.assertIn("<li>Solaris, Stanislaw Lem, 1961</li>", page)

    def test_the_oldest_book_comes_first(self):
        page = render(self.ask)
        self.assertLess(page.index("Solaris"), page.index("Kindred"))

    def test_the_page_needs_one_request(self):
        render(self.ask)
        self.assertEqual(len(self.queries), 1)
