"""Open an index with the library and retrieve: `library.py STORE QUESTION K` prints the hits as JSON.

A standalone program, as a serving team would write it.
"""

import json
import sys

import indexmill

if __name__ == "__main__":
    store, question, k = sys.argv[1:]
    with indexmill.open(store) as snapshot:
        hits = snapshot.retrieve(question, k=int(k))
    print(json.dumps([{"kind": hit.kind, "id": hit.id, "score": hit.score} for hit in hits]))
