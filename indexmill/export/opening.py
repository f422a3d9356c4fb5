"""How to open an export: what its data card says, and the lines that load vectors into databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from indexmill.store.exported import MANIFEST_FILE
from indexmill.store.manifest import Manifest
from indexmill.text.counted import byte_size, counted

__all__ = ["loading", "opening"]


def opening(manifest: Manifest, digest: str, form: str) -> Iterator[str]:
    """The paragraphs of a card that tell how to open an export of a form. digest: of the manifest."""
    yield "## Open it"
    if form == "snapshot":
        yield (
            "With `pip install 'indexmill[query]'`, in the place of `DIR` the path of this folder:\n\n"
            f'```python\nimport indexmill\n\nsnapshot = indexmill.open("DIR", manifest="{digest}")\n'
            'hits = snapshot.retrieve("a question", k=5)\n```'
        )
        size = byte_size(sum(one.bytes for one in manifest.artifacts))
        yield (
            f"`indexmill verify --store DIR` checks all {counted(len(manifest.artifacts), 'artifact')} ({size}) "
            f"against `{MANIFEST_FILE}`, which lists them. This card is for people, and no digest covers it. Any tool "
            "reads the tables (Parquet); docs/format.md of indexmill describes the arrays."
        )
    elif form == "vectors":
        yield from _loading(manifest)
    elif form == "graphrag":
        yield "Point a tool that reads GraphRAG's tables at this folder as its output folder."
    else:
        yield "Open the files with Gephi, Cytoscape, yEd, networkx or igraph."


def _loading(manifest: Manifest) -> Iterator[str]:
    """The lines that load passages into vector databases."""
    encoder = manifest.models.get("encoder")
    length = encoder.get("dimension") if isinstance(encoder, dict) else None
    length = length if isinstance(length, int) else 0
    yield (
        "Each file is a table; `vector` holds unit vectors, so that cosine, inner product and distance give one order. "
        "Questions are encoded by the encoder above: `vector = indexmill.open(STORE).encode([question])[0]`."
    )
    for name, lines in loading(length).items():
        yield f"{name}:\n\n```python\n{lines}\n```"


def loading(length: int) -> Mapping[str, str]:
    """By database, the lines of Python that load the passages, after those that connect; length: of a vector."""
    rows = 'rows = (one for batch in ParquetFile("passages.parquet").iter_batches() for one in batch.to_pylist())\n'
    return {
        "LanceDB": (
            "import lancedb\nfrom pyarrow.parquet import ParquetFile\n\n"
            'file, db = ParquetFile("passages.parquet"), lancedb.connect("lance")\n'
            'table = db.create_table("passages", file.iter_batches(), schema=file.schema_arrow)\n'
            'found = table.search(vector).distance_type("cosine").limit(5).to_list()'
        ),
        "Qdrant": (
            "from pyarrow.parquet import ParquetFile\n"
            "from qdrant_client import QdrantClient\n"
            "from qdrant_client.models import Distance, PointStruct, VectorParams\n\n"
            f'{rows}client = QdrantClient(path="qdrant")\n'
            f'client.create_collection("passages", VectorParams(size={length}, distance=Distance.COSINE))\n'
            'client.upload_points("passages", (PointStruct(id=one["id"], vector=one.pop("vector"), payload=one) '
            "for one in rows))\n"
            'found = client.query_points("passages", vector.tolist(), limit=5).points'
        ),
        "pgvector": (
            "import psycopg\nfrom pyarrow.parquet import ParquetFile\n\n"
            f"{rows}connection = psycopg.connect(URL)\n"
            f'connection.execute("CREATE TABLE passages (id text PRIMARY KEY, text text, vector vector({length}))")\n'
            'with connection.cursor().copy("COPY passages FROM STDIN") as copy:\n'
            '    for one in rows: copy.write_row((one["id"], one["text"], str(one["vector"])))'
        ),
    }
