"""`python3 -m bookshop` serves the shop; with a path, prints what the API answers to it."""

import json
import sys
from wsgiref.simple_server import make_server as listen

from bookshop.api import Api
from bookshop.catalogue import Catalogue
from bookshop.server import make_server

if len(sys.argv) > 1:
    status, document = Api(Catalogue()).answer("GET", sys.argv[1])
    print(json.dumps(document))
    sys.exit(0 if status == 200 else 1)
print("http://localhost:8000")
listen("localhost", 8000, make_server(Catalogue())).serve_forever()
