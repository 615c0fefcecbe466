import io
import json
import unittest

from bookshop.catalogue import Catalogue
from bookshop.graphql import execute
from bookshop.resolvers import make_schema
from bookshop.server import make_server


class GraphQLTest(unittest.TestCase):
    def setUp(self):
        self.schema = make_schema(Catalogue())

    def ask(self, query, **variables):
        return execute(self.schema, query, variables)

    def test_a_book_comes_with_its_author(self):
        answer = self.ask("{ book(id: 2) { title author { name } } }")
        self.assertEqual(answer, {"data": {"book": {"title": "Solaris", "author": {"name": "Stanislaw Lem"}}}})

    def test_a_book_that_is_not_there_is_null_and_no_error(self):
        self.assertEqual(self.ask("{ book(id: 99) { title } }"), {"data": {"book": None}})

    def test_books_are_sorted_by_year(self):
        years = [book["year"] for book in self.ask("{ books { year } }")["data"]["books"]]
        self.assertEqual(years, sorted(years))

    def test_an_author_has_books_and_a_field_has_aliases(self):
        answer = self.ask("{ lem: author(id: 2) { written: books { title } } }")
        self.assertEqual(answer["data"]["lem"]["written"], [{"title": "Solaris"}, {"title": "The Cyberiad"}])

    def test_a_book_is_added_with_variables(self):
        add = "mutation Add($title: String!) { addBook(title: $title, year: 1986, authorId: 2) { id title } }"
        self.assertEqual(self.ask(add, title="Fiasco"), {"data": {"addBook": {"id": 7, "title": "Fiasco"}}})

    def test_what_fails_is_told_with_its_path(self):
        answer = self.ask('mutation { addBook(title: "Fiasco", year: 1986, authorId: 9) { id } }')
        self.assertEqual(answer["errors"], [{"message": "there is no author 9", "path": ["addBook"]}])

    def test_a_field_that_is_not_there_is_told(self):
        answer = self.ask("{ books { colour } }")
        self.assertEqual(answer["errors"][0], {"message": "Book has no field colour", "path": ["books", 0, "colour"]})

    def test_a_query_that_cannot_be_read_is_told(self):
        self.assertEqual(self.ask("{ books { title }"), {"errors": [{"message": "expected a name, not 'the end'"}]})

    def test_the_server_answers_queries(self):
        body = json.dumps({"query": "{ author(id: 3) { name } }"}).encode()
        request = {"REQUEST_METHOD": "POST", "PATH_INFO": "/graphql", "CONTENT_LENGTH": str(len(body))}
        [answer] = make_server(Catalogue())({**request, "wsgi.input": io.BytesIO(body)}, lambda *_: None)
        self.assertEqual(json.loads(answer), {"data": {"author": {"name": "Octavia E. Butler"}}})
