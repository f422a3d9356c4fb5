"""Tables of a data lake are refused as files; partition folders give columns."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import BadInput
from schemas.corpus import AccessSettings, CorpusSettings, FieldNames
from schemas.sources import PluginSettings
from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.known import FileIdentity
from tasks.stages.ingest.lake_folders import note_table, partition_columns
from tasks.stages.ingest.listing import list_corpus
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find
from tests.deep import examples

MARKS = {
    "delta": "_delta_log/00000000000000000000.json",
    "iceberg": "metadata/00002-8b1c.metadata.json",
    "hudi": ".hoodie/hoodie.properties",
}


def table(folder: Path, table_format: str = "delta", data: str = "part-0.parquet") -> Path:
    for name in (MARKS[table_format], data, "README.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder


def refusal(*paths: Path | str) -> str:
    with pytest.raises(BadInput) as caught:
        find(CorpusSettings(paths=tuple(map(str, paths))))
    return str(caught.value)


@pytest.mark.parametrize("reached", ["{}", "{}/lake", "{}/*", "{}/**/*.parquet", "{}/lake/pages", "{}/lake/pages/*"])
def test_the_files_of_a_table_are_refused_however_they_are_reached(tmp_path: Path, reached: str) -> None:
    pages = table(tmp_path / "lake/pages", data="day=1/part-0.parquet")
    assert f"add {{kind: table, format: delta, url: {pages}}} to corpus.sources" in refusal(reached.format(tmp_path))
    assert f"remove {pages}/day=1 from corpus.paths" in refusal(f"{pages}/day=1")
    assert f"remove {pages}/day=1/part-0.parquet from" in refusal(f"{pages}/day=1/part-0.parquet")


def test_the_refusal_says_how_to_exclude_each_table(tmp_path: Path) -> None:
    table(tmp_path / "a, b/pages [1]")
    table(tmp_path / "new", "iceberg", "data/part-0.parquet")
    table(tmp_path / "old", "hudi")
    (tmp_path / "pages.jsonl").write_text('{"id": "1", "text": "Vell."}\n')
    first, *lines = refusal(tmp_path).splitlines()
    assert (first, len(lines)) == ("folders of the corpus are tables", 3)
    assert f"{{kind: table, format: delta, url: '{tmp_path}/a, b/pages [1]'}}" in lines[0]
    assert "add ['a, b/pages ?1]/**'] to corpus.exclude" in lines[0]
    assert lines[1].strip() == (
        f"{tmp_path}/new is an Iceberg table, whose files also hold deleted and replaced rows: to read the table, add "
        f"{{kind: table, format: iceberg, url: {tmp_path}/new}} to corpus.sources, and add [new/**] to corpus.exclude "
        "so that its files are not read"
    )
    assert "such tables cannot be read, so write its rows to a folder of Parquet files" in lines[2]
    exclude = ("a, b/pages ?1]/**", "new/**", "old/**")
    assert [file.name for file in find(CorpusSettings(paths=(str(tmp_path),), exclude=exclude)).files] == [
        "pages.jsonl"
    ]


def test_files_of_text_in_a_table_are_no_rows_of_it(tmp_path: Path) -> None:
    table(tmp_path / "pages")
    files = find(CorpusSettings(paths=(str(tmp_path),), include=("*.md",))).files
    assert [file.name for file in files] == ["pages/README.md"]


def test_a_folder_called_metadata_is_no_table(tmp_path: Path) -> None:
    for name in ("metadata/pages.json", "metadata/pages.metadata.json", "data/a.jsonl", "_delta_log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert len(find(CorpusSettings(paths=(str(tmp_path),))).files) == 3


def test_a_folder_with_several_logs_is_read_by_the_first_that_can_be() -> None:
    formats: dict[str, str] = {}
    for mark in (*MARKS.values(), *reversed(MARKS.values())):
        note_table(f"uniform/{mark}", formats)  # type: ignore[arg-type]
    note_table(MARKS["hudi"], formats)  # type: ignore[arg-type]
    note_table(f"both/{MARKS['hudi']}", formats)  # type: ignore[arg-type]
    note_table(f"both/{MARKS['iceberg']}", formats)  # type: ignore[arg-type]
    assert formats == {"uniform": "delta", "": "hudi", "both": "iceberg"}


class Lake:
    """A place that lists names."""

    def __init__(self, *, names: list[str]) -> None:
        self._names = names

    def list(self) -> list[dict[str, str]]:
        return [{"name": name, "token": "1"} for name in self._names]

    def read(self, name: str) -> bytes:
        return b'{"id": "1", "text": "Vell."}'


def lake(*names: str) -> PluginSettings:
    return PluginSettings.model_validate(
        {"kind": "plugin", "class": f"{__name__}:Lake", "options": {"names": list(names)}}
    )


@pytest.mark.parametrize("table_format", MARKS)
def test_a_table_that_a_source_lists_is_refused(tmp_path: Path, table_format: str) -> None:
    place = lake("a.jsonl", "lake/README.md", "lake/part-0.parquet", f"lake/{MARKS[table_format]}")
    with pytest.raises(BadInput, match=rf"Lake/lake is an? {table_format.title()} .*add \[lake/\*\*\] to"):
        list_corpus(CorpusSettings(sources=(place,)), tmp_path)
    files = list_corpus(CorpusSettings(sources=(place,), exclude=("lake/*.parquet", "lake/*/*")), tmp_path).files
    assert [file.name for file in files] == ["a.jsonl", "lake/README.md"]
    with pytest.raises(BadInput, match=r"remove .*:Lake from the corpus"):
        list_corpus(CorpusSettings(sources=(lake("a.parquet", MARKS[table_format]),)), tmp_path)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("lang=en/date=2024-01-01/a.parquet", {"lang": "en", "date": "2024-01-01"}),
        ("pages/lang=/x=a=b/k=v.csv", {"lang": "", "x": "a=b"}),
        ("lang=__HIVE_DEFAULT_PARTITION__/a.csv", {"lang": None}),
        ("la%20ng=%20x%2Fy+z/a.csv", {"la ng": " x/y+z"}),
        ("lang=en/lang=de/a.csv", {"lang": "en"}),
        ("=en/a.csv", {}),
        ("x=%ff/y=%00/z=%zz/a.csv", {"x": "%ff", "y": "%00", "z": "%zz"}),
        ("a=b.csv", {}),
    ],
)
def test_folders_give_columns(name: str, columns: dict[str, str | None]) -> None:
    assert partition_columns(name) == columns


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3))
@examples(30, deep=2000)
def test_folders_give_the_columns_that_pyarrow_gives(columns: dict[str, str]) -> None:
    folders = [f"{quote(key, '')}={quote(value, '')}" for key, value in columns.items() if "\x00" not in key + value]
    hive = pyarrow.dataset.HivePartitioning(pa.schema([(key, pa.string()) for key in columns]))
    expected = pyarrow.dataset.get_partition_keys(hive.parse("/".join([*folders, "a.parquet"])))
    assert partition_columns("/".join([*folders, "a.parquet"])) == expected


def rows(folder: Path, **settings: object) -> list[tuple[str, dict[str, object]]]:
    chosen = CorpusSettings.model_validate({"paths": (str(folder),), **settings})
    found = [(file, row) for file in find(chosen).files for row in read(file, chosen)]
    assert not [row for _, row in found if isinstance(row, RejectedRow)], found
    return [(file.name, dict(row.record)) for file, row in found if isinstance(row, SourceRow)]


def test_rows_have_the_columns_of_their_folders_unless_the_file_has_them(tmp_path: Path) -> None:
    folder = tmp_path / "lang=en" / "pages"
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"id": 1, "text": "Vell."}\n{"id": 2, "text": "Vell.", "lang": null}\n')
    (folder / "b.csv").write_text("id,text,lang\n3,Vell.,de\n")
    (folder / "c.md").write_text("Vell.")
    (folder / "d.json").write_text('[{"id": 4, "text": "Vell."}]')
    pq.write_table(pa.table({"id": ["5"], "text": ["Vell."]}), folder / "e.parquet")
    found = rows(tmp_path)
    assert [record.get("lang", "-") for _, record in found] == ["en", None, "de", "-", "en", "en"]
    assert found[3][1]["metadata"] == {}  # of a text file, a folder's name says nothing
    assert [record.get("lang", "-") for _, record in rows(tmp_path / "lang=en")] == ["-", None, "de", "-", "-", "-"]


def test_a_column_of_a_folder_is_one_to_the_settings_of_fields(tmp_path: Path) -> None:
    folder = tmp_path / "groups=legal"
    folder.mkdir()
    pq.write_table(pa.table({"id": ["1"], "text": ["Vell."], "x": [1]}), folder / "a.parquet")
    fields = FieldNames(metadata=("groups",))
    found = rows(tmp_path, fields=fields, access=AccessSettings(field="groups"))
    assert found == [("groups=legal/a.parquet", {"groups": "legal", "id": "1", "text": "Vell."})]
    settings = CorpusSettings(paths=(str(folder),), fields=fields)
    (row,) = read(find(settings).files[0], settings)
    assert isinstance(row, RejectedRow)
    assert "no column groups" in row.detail


def test_a_column_of_a_folder_counts_where_the_delimiter_of_csv_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "id=7"
    folder.mkdir()
    (folder / "a.csv").write_text("text;x,y,z\nVell.;1\n")
    assert rows(tmp_path) == [("id=7/a.csv", {"id": "7", "text": "Vell.", "x,y,z": "1"})]


def test_a_file_whose_columns_change_is_read_again(tmp_path: Path) -> None:
    for name in ("x/lang=en/a.jsonl", "y/lang=en/a.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(json.dumps({"id": name, "text": "Vell."}))
    above, within = (
        find(CorpusSettings(paths=tuple(f"{tmp_path}/{name}" for name in names))).files
        for names in (("x", "y"), ("x/lang=en", "y/lang=en"))
    )
    assert [file.name for file in above] == [file.name for file in within]  # whole paths, to tell them apart
    before, after = (FileIdentity.of(files[0]) for files in (above, within))
    assert before.details != after.details == ""
