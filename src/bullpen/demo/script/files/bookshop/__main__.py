"""`python3 -m bookshop` serves the shop; with a query, prints what it answers."""

import json
import sys
from wsgiref.simple_server import make_server as listen

from bookshop.catalogue import Catalogue
from bookshop.graphql import execute
from bookshop.resolvers import make_schema
from bookshop.server import make_server

if len(sys.argv) > 1:
    answer = execute(make_schema(Catalogue()), sys.argv[1])
    print(json.dumps(answer))
    sys.exit(1 if "errors" in answer else 0)
print("http://localhost:8000")
listen("localhost", 8000, make_server(Catalogue())).serve_forever()
