import unittest

from bookshop.api import Api
from bookshop.catalogue import Catalogue
from bookshop.page import render


class PageTest(unittest.TestCase):
    def test_the_page_shows_every_book_with_its_author(self):
        page = render(Api(Catalogue()))
        self.assertEqual(page.count("<li>"), 6)
        self.assertIn("<li>Solaris, Stanislaw Lem, 1961</li>", page)

    def test_the_oldest_book_comes_first(self):
        page = render(Api(Catalogue()))
        self.assertLess(page.index("Solaris"), page.index("Kindred"))
