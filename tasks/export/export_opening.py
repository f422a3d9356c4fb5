"""The section of the data card on opening an export, with code that loads its vectors into databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from indexmill.store.exported import MANIFEST_FILE
from indexmill.store.manifest import Manifest
from indexmill.text.counted import byte_size, counted


def opening(manifest: Manifest, digest: str, form: str) -> Iterator[str]:
    """Yield the paragraphs on opening an export. digest: the SHA-256 of the manifest. form: the export's format."""
    yield "## Open it"
    if form == "snapshot":
        yield (
            "After `pip install 'indexmill[query]'`, with the path of this folder for `DIR`:\n\n"
            f'```python\nimport indexmill\n\nsnapshot = indexmill.open("DIR", manifest="{digest}")\n'
            'hits = snapshot.retrieve("a question", k=5)\n```'
        )
        size = byte_size(sum(artifact.bytes for artifact in manifest.artifacts))
        yield (
            f"`indexmill verify --store DIR` checks all {counted(len(manifest.artifacts), 'artifact')} ({size}) "
            f"against `{MANIFEST_FILE}`, which lists them. No digest covers this card. Any tool "
            "reads the tables (Parquet); docs/format.md of indexmill describes the arrays."
        )
    elif form == "vectors":
        yield from _loading(manifest)
    elif form == "graphrag":
        yield "Point a tool that reads GraphRAG's tables at this folder as its output folder."
    else:
        yield "Open the files with Gephi, Cytoscape, yEd, networkx or igraph."


def _loading(manifest: Manifest) -> Iterator[str]:
    encoder = manifest.models.get("encoder")
    length = encoder.get("dimension") if isinstance(encoder, dict) else None
    length = length if isinstance(length, int) else 0
    yield (
        "Each file is a table; `vector` contains unit vectors, so cosine, inner product and distance agree. "
        "Questions are encoded by the encoder above: `vector = indexmill.open(STORE).encode([question])[0]`."
    )
    for name, lines in loading(length).items():
        yield f"{name}:\n\n```python\n{lines}\n```"


def loading(length: int) -> Mapping[str, str]:
    """Return Python code, by database, that loads the passages and searches them. length: the vectors' dimension."""
    return {name: lines.replace("LENGTH", str(length)) for name, lines in _LOADING.items()}


_ROWS = 'rows = (one for batch in ParquetFile("passages.parquet").iter_batches() for one in batch.to_pylist())'
_LOADING = {
    "LanceDB": """\
import lancedb
from pyarrow.parquet import ParquetFile

file, db = ParquetFile("passages.parquet"), lancedb.connect("lance")
table = db.create_table("passages", file.iter_batches(), schema=file.schema_arrow)
found = table.search(vector).distance_type("cosine").limit(5).to_list()""",
    "Qdrant": f"""\
from pyarrow.parquet import ParquetFile
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, PointStruct, VectorParams

client = QdrantClient(path="qdrant")
{_ROWS}
client.create_collection("passages", VectorParams(size=LENGTH, distance=Distance.COSINE))
client.upload_points("passages", (PointStruct(id=one["id"], vector=one.pop("vector"), payload=one) for one in rows))
found = client.query_points("passages", vector.tolist(), limit=5).points""",
    "pgvector": """\
import psycopg
from pyarrow.parquet import ParquetFile

connection = psycopg.connect(URL)
connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
ROWS
connection.execute("CREATE TABLE passages (id text PRIMARY KEY, text text, vector vector(LENGTH))")
with connection.cursor().copy("COPY passages FROM STDIN") as copy:
    for one in rows: copy.write_row((one["id"], one["text"], str(one["vector"])))
nearest = "SELECT id FROM passages ORDER BY vector <=> %s LIMIT 5"
found = connection.execute(nearest, [str(vector.tolist())]).fetchall()""".replace("ROWS", _ROWS),
}
"""The code by database; LENGTH stands for the dimension of the vectors."""
