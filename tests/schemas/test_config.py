"""The configuration: what its paths mean, what it refuses, and what of it is published."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import yaml

from indexmill.command.options import Options
from indexmill.errors import ConfigurationError
from schemas.config import Configuration, load_configuration
from schemas.config.explained import explained_configuration


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the configuration file lies: neither the current folder nor home."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "settings").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "settings"


def written(folder: Path, **settings: object) -> Path:
    path = folder / "indexmill.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("index", "settings/index"),
        ("../index", "settings/../index"),
        ("~/index", "home/index"),
        ("~nobody-of-this-name", "settings/~nobody-of-this-name"),
        ("file://{root}/an%20index", "an index"),
        ("{root}/index", "index"),
        (None, "settings/store"),
    ],
)
def test_a_build_writes_the_store_that_a_query_reads(folder: Path, given: str | None, meant: str) -> None:
    root = folder.parent
    path = written(folder, **({} if given is None else {"store": given.format(root=root)}))
    assert load_configuration(path).store == root / meant
    assert Path(Options(config=path).store_path()) == root / meant


def test_the_command_line_names_the_same_store_for_both(folder: Path) -> None:
    path = written(folder, store="index")
    for given, meant in (("other", Path("other")), (f"file://{folder}/x", folder / "x"), ("~/x", Path.home() / "x")):
        assert load_configuration(path, {"store": given}).store == meant
        assert Path(Options(store=given, config=path).store_path()) == meant


def test_the_url_of_an_object_store_is_meant_as_it_is(folder: Path) -> None:
    path = written(folder, store="s3://bucket/indexes/news/")
    assert load_configuration(path).store == "s3://bucket/indexes/news"
    assert Options(config=path).store_path() == "s3://bucket/indexes/news"


@pytest.mark.parametrize(
    "given",
    [
        "ftp://host/index",
        "memory://index",
        "s3://",
        "s3://key:secret@bucket/index",
        "s3://bucket/a?x=1",
        "s3://bucket/../x",
        "",
    ],
)
def test_a_store_that_is_no_place_is_refused_by_both(folder: Path, given: str) -> None:
    path = written(folder, store=given)
    with pytest.raises(ConfigurationError, match=r"indexmill\.yaml: store: "):
        load_configuration(path)
    with pytest.raises(ConfigurationError, match=r"indexmill\.yaml: store: "):
        Options(config=path).store_path()
    if given:
        with pytest.raises(ConfigurationError, match="store"):
            Options(store=given).store_path()


def test_corpus_paths_start_at_the_file_or_at_home(folder: Path) -> None:
    several = load_configuration(written(folder, corpus={"paths": ["a.jsonl", "~/b", "/c", "../d/*.md"]})).corpus
    assert several is not None
    home = folder.parent / "home"
    assert several.paths == (f"{folder}/a.jsonl", f"{home}/b", "/c", f"{folder}/../d/*.md")
    one = load_configuration(written(folder, corpus={"paths": "a.jsonl"})).corpus
    assert one is not None
    assert one.paths == (f"{folder}/a.jsonl",)


@pytest.mark.parametrize(
    ("source", "setting", "meant"),
    [
        ({"kind": "git", "repository": "wiki"}, "repository", "{folder}/wiki"),
        ({"kind": "git", "repository": "../wiki"}, "repository", "{folder}/../wiki"),
        ({"kind": "git", "repository": "git@example.org:team/wiki.git"}, "repository", "git@example.org:team/wiki.git"),
        ({"kind": "git", "repository": "forge:team/wiki"}, "repository", "forge:team/wiki"),
        ({"kind": "git", "repository": "https://example.org/wiki"}, "repository", "https://example.org/wiki"),
        ({"kind": "sql", "query": "SELECT 1", "url": "sqlite:///wiki.db"}, "url", "sqlite:///{folder}/wiki.db"),
        ({"kind": "sql", "query": "SELECT 1", "url": "sqlite:///w.db?mode=ro"}, "url", "sqlite:///{folder}/w.db?mode=ro"),
        ({"kind": "sql", "query": "SELECT 1", "url": "sqlite:////w.db"}, "url", "sqlite:////w.db"),
        ({"kind": "sql", "query": "SELECT 1", "url": "duckdb:///:memory:"}, "url", "duckdb:///:memory:"),
        ({"kind": "sql", "query": "SELECT 1", "url": "sqlite:///$WIKI"}, "url", "sqlite:///$WIKI"),
        ({"kind": "table", "format": "delta", "url": "wiki"}, "url", "{folder}/wiki"),
        ({"kind": "feed", "paths": ["events@home:1/*.jsonl"]}, "paths", ("{folder}/events@home:1/*.jsonl",)),
        ({"kind": "web", "lists": ["urls.txt", "https://example.org/urls.txt"]}, "lists",
         ("{folder}/urls.txt", "https://example.org/urls.txt")),
    ],
)  # fmt: skip
def test_paths_of_sources_start_at_the_file(
    folder: Path, source: dict[str, object], setting: str, meant: str | tuple[str, ...]
) -> None:
    corpus = load_configuration(written(folder, corpus={"sources": [source]})).corpus
    assert corpus is not None
    found = getattr(corpus.sources[0], setting)
    if isinstance(meant, str):
        assert found == meant.format(folder=folder)
    else:
        assert found == tuple(one.format(folder=folder) for one in meant)


def test_the_question_file_of_the_gate_starts_at_the_file(folder: Path) -> None:
    read = load_configuration(written(folder, gates={"questions": "q.jsonl", "methods": "dense"})).gates
    assert (read.questions, read.methods) == (folder / "q.jsonl", ("dense",))
    assert load_configuration(written(folder, gates={"max_shrink": 1})).gates.questions is None


def test_a_model_or_recogniser_is_a_path_if_it_lies_there(folder: Path) -> None:
    (folder / "models" / "mini").mkdir(parents=True)
    (folder / "rules").mkdir()
    (folder.parent / "home" / "ner").mkdir()

    def chosen(model: str, recogniser: str) -> tuple[str, str]:
        read = load_configuration(written(folder, embed={"model": model}, recognise={"recogniser": recogniser}))
        return read.embed.model, read.recognise.recogniser

    assert chosen("models/mini", "~/ner") == (f"{folder}/models/mini", str(folder.parent / "home" / "ner"))
    assert chosen("./models/mini", "./rules") == (f"{folder}/models/mini", f"{folder}/rules")
    assert chosen("sentence-transformers/all-MiniLM-L6-v2", "rules") == (
        "sentence-transformers/all-MiniLM-L6-v2",
        "rules",
    )


def test_no_path_of_the_machine_is_published(folder: Path) -> None:
    def published(recogniser: str) -> object:
        settings = {
            "store": str(folder),
            "corpus": {"paths": [str(folder)]},
            "embed": {"model": str(folder)},
            "recognise": {"recogniser": recogniser},
        }
        return Configuration.model_validate(settings).published()

    for path in (str(folder), "./ner", "~/ner", "models/ner"):
        shown = published(path)
        assert str(folder) not in str(shown)
        assert path not in str(shown)
        assert shown == published("/another/place")
    assert published("rules") != published("en_core_web_sm")


def test_the_size_of_shards_is_published_and_nothing_of_the_run_is() -> None:
    plain = Configuration().published()
    assert plain["shards"] == {"document_tokens": 128_000, "entities": 1_024}
    assert sorted(plain) == ["embed", "extract", "families", "llm", "recognise", "shards", "split"]
    run = {"workers": 3, "lease_seconds": 30, "strict": True}
    gates = {"questions": "q.jsonl", "methods": ["dense"], "max_shrink": 0.5}
    assert Configuration.model_validate({"run": run, "gates": gates}).published() == plain
    for shards in ({"document_tokens": 1_000}, {"entities": 64}):
        assert Configuration.model_validate({"shards": shards}).published() != plain


def test_who_may_read_documents_is_published_and_nothing_else_of_the_corpus() -> None:
    def of(access: object, **more: object) -> Configuration:
        return Configuration.model_validate({"corpus": {"paths": ["a.jsonl"], "access": access, **more}})

    assert of(None).published() == Configuration().published()
    said = of({"field": "groups"}).published()
    assert said == {**Configuration().published(), "corpus": {"access": {"field": "groups", "required": True}}}
    assert of({"field": "groups", "required": False}).published()["corpus"]["access"]["required"] is False
    assert of({"field": "groups"}, fields={"metadata": ["lang", "groups"]})
    for access, fields, message in (
        ({"field": "title"}, {}, "uses for something else"),
        ({"field": "url"}, {}, "uses for something else"),
        ({"field": "docno"}, {"id": "docno"}, "uses for something else"),
        ({"field": "groups"}, {"metadata": ["lang"]}, "does not keep"),
        ({"field": ""}, {}, "at least 1"),
        ({"fields": "groups"}, {}, "fields"),
        ("groups", {}, "access"),
    ):
        with pytest.raises(ValueError, match=message):
            of(access, fields=fields)


def test_how_entities_are_described_is_published_where_they_are() -> None:
    settings: dict[str, object] = {"description": {"most_pieces": 3}, "same_as": {"cosine": 0.5}}
    plain = Configuration.model_validate({"resolve": settings})
    assert (plain.extracts, plain.describes) == (False, False)
    assert plain.published() == Configuration().published()
    extracting = Configuration.model_validate({"resolve": settings, "extract": {"enabled": True}})
    assert (extracting.extracts, extracting.describes) == (True, False)
    assert "resolve" not in extracting.published()
    described = Configuration.model_validate({"resolve": {"description": {"enabled": True}}})
    assert (described.extracts, described.describes) == (True, True)
    assert described.published()["resolve"]["same_as"]["cosine"] == 0.8
    assert Configuration.model_validate(described.published()).describes


@pytest.mark.parametrize(("family", "describes"), [("heterograph", False), ("community_tree", True)])
def test_a_family_that_is_made_has_what_it_is_made_from(family: str, describes: bool) -> None:
    settings: dict[str, object] = {"families": {family: {"enabled": True}}}
    made = Configuration.model_validate(settings)
    assert (made.extracts, made.describes) == (True, describes)
    off = Configuration.model_validate({"families": {family: {"enabled": False}}})
    assert (off.extracts, off.describes) == (False, False)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"shards": {"document_tokens": 999}}, "shards.document_tokens"),
        ({"shards": {"entities": 63}}, "shards.entities"),
        ({"run": {"shard_tokens": 2_000}}, "run.shard_tokens"),
        ({"resolve": {"entities_per_shard": 64}}, "resolve"),
        ({"resolve": {"description": {"most_pieces": 0}}}, "resolve.description.most_pieces"),
        ({"resolve": {"same_as": {"likeness": 1.5}}}, "resolve.same_as.likeness"),
        ({"split": {"tokens": 64, "overlap": 33}}, "overlap 33"),
        ({"families": {"tri_graph": {"parameters": {"dampening": 1}}}}, "dampening"),
        ({"families": {"bm25": {"parameters": {"k2": 1}}}}, "k2"),
        ({"families": {"heterograph": {"parameters": {"alpha": 0.5}}}}, "alpha"),
        ({"families": {"heterograph": {"units": 0, "relations": 0}}}, "have no input"),
        ({"families": {"lsh_tree": {"parameters": {"patern": "detailed"}}}}, "patern"),
        ({"families": {"lsh_tree": {"parameters": {"pattern": "deep"}}}}, "'collapsed', 'detailed' or 'summarised'"),
        ({"families": {"lsh_tree": {"parameters": {"ratio": 1.5}}}}, "less than or equal to 1"),
        ({"families": {"bm25": {"parameters": {"b": 1.5}}}}, "less than or equal to 1"),
        ({"families": {"bm25": {"parameters": {"k1": -1}}}}, "greater than or equal to 0"),
        ({"families": {"bm25": {"title_weight": 0}}}, "families.bm25.title_weight"),
        ({"gates": {"methods": ["magic"]}}, "no method 'magic'"),
        ({"gates": {"methods": []}}, "gates.methods"),
        ({"gates": {"minimum": 0.5}}, "set gates.questions"),
        ({"gates": {"max_shrink": 20}}, "gates.max_shrink"),
        (
            {"gates": {"questions": "q", "methods": "bm25"}, "families": {"bm25": {"enabled": False}}},
            "families.bm25 is not enabled",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_its_file(folder: Path, settings: dict[str, object], named: str) -> None:
    path = written(folder, **settings)
    with pytest.raises(ConfigurationError, match=rf"indexmill\.yaml: .*{named}"):
        load_configuration(path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"splt": {}}, ["splt: there is no such setting; did you mean split?"]),
        ({"run": {"wokers": 3}}, ["run.wokers: there is no such setting; did you mean workers?"]),
        (
            {"max_failed_share": 1},
            ["max_failed_share: there is no such setting here; did you mean run.max_failed_share?"],
        ),
        ({"shards": {"x": 1}}, ["shards.x: there is no such setting; the settings are document_tokens, entities"]),
        (
            {"families": {"bm25": {"parameters": {"k2": 1, "b": 1.5, "k1": "x"}}}},
            [
                "families.bm25.parameters.k2: there is no such setting; the settings are k1, b, title, common_words",
                "families.bm25.parameters.k1: expected a number greater than or equal to 0, found 'x'",
                (
                    "families.bm25.parameters.b: expected a number greater than or equal to 0 and less than or equal "
                    "to 1, found 1.5"
                ),
            ],
        ),
        (
            {"families": {"tri_graph": {"parameters": {"damping": [1]}}}},
            ["families.tri_graph.parameters.damping: expected a number, true or false, or a string, found a list"],
        ),
        (
            {"corpus": {"fields": {"metadata": 3}}},
            ["corpus.fields.metadata: expected a string, or a list of strings, found 3"],
        ),
        ({"corpus": {"include": "*.md"}}, ["corpus: give paths or sources of documents"]),
        ({"corpus": {"paths": ["a"], "include": [1]}}, ["corpus.include[0]: expected a string, found 1"]),
        (
            {"split": {"language": "English", "tokens": "many"}},
            [
                (
                    "split.tokens: expected a whole number greater than or equal to 16 and less than or equal to 8192, "
                    "found 'many'"
                ),
                "split.language: expected the two letters of a language, such as en, found 'English'",
            ],
        ),
        ({"shards": 3}, ["shards: expected a section with document_tokens, entities, found 3"]),
        (
            {"llm": {"token_provider": "a.b"}},
            ["llm.token_provider: expected module:function, such as my_package:token"],
        ),
        (
            {"run": {"workers": 0}},
            ["run.workers: expected a whole number greater than or equal to 1, or null, found 0"],
        ),
        ({"extract": {"enabled": "maybe"}}, ["extract.enabled: expected true or false, found 'maybe'"]),
        ({"embed": {"backend": "onnx"}}, ["embed.backend: expected 'openvino', 'torch' or 'openai', found 'onnx'"]),
        (
            {"gates": {"methods": []}},
            ["gates.methods: expected a list of strings of at least 1 item, found an empty list"],
        ),
        ({3: 4}, ["names of settings must be strings, found 3"]),
        (
            {"prices": {"m": {"input_per_million": 1, "output_per_million": 1, "currency": "usd"}}},
            ["prices.m.currency: expected the three capital letters of a currency, such as USD, found 'usd'"],
        ),
        ({"split": {"tokens": 64, "overlap": 33}}, ["split: overlap 33 is more than half of tokens 64"]),
    ],
)
def test_each_mistake_is_one_line_with_its_key_what_is_allowed_and_what_was_given(
    folder: Path, settings: dict[object, object], said: list[str]
) -> None:
    path = folder / "indexmill.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(path)
    listed = said[0] if len(said) == 1 else "\n  ".join([f"{len(said)} settings are wrong", *said])
    assert str(caught.value) == f"{path}: {listed}"


def test_what_overrides_the_file_is_refused_in_the_same_words(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"run\.wokers: there is no such setting; did you mean workers\?"):
        load_configuration(written(folder), {"run": {"wokers": 1}})


def test_the_explained_configuration_is_the_default_one(folder: Path) -> None:
    path = folder / "indexmill.yaml"
    path.write_text(explained_configuration({"corpus": {"paths": ["corpus.jsonl"]}}), encoding="utf-8")
    read = load_configuration(path)
    assert read.model_dump(exclude={"store", "corpus"}) == Configuration().model_dump(exclude={"store", "corpus"})
    assert "document_tokens: 128000" in path.read_text(encoding="utf-8")


def test_the_files_of_the_language_model_start_at_the_configuration_file(folder: Path) -> None:
    files = {"api_key_file": "key", "ca_file": "~/ca.pem", "prompts": "/prompts"}
    read = load_configuration(written(folder, llm=files)).llm
    assert read.api_key_file == folder / "key"
    assert read.ca_file == folder.parent / "home" / "ca.pem"
    assert read.prompts == Path("/prompts")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"backend": "openai"}, r"set llm\.model"),
        ({"base_url": "localhost:8000/v1"}, r"llm\.base_url.*http://"),
        ({"base_url": "https:///v1"}, r"llm\.base_url"),
        ({"base_url": "http://host:port/v1"}, r"llm\.base_url"),
        ({"proxy": "proxy.example:3128"}, r"llm\.proxy"),
        ({"api_key_env": "sk-abc"}, r"llm\.api_key_env.*not the key itself"),
        ({"api_key_file": "key", "token_provider": "a.b:c"}, "mutually exclusive: give only one"),
        ({"token_provider": "a.b.c"}, r"llm\.token_provider"),
    ],
)
def test_a_wrong_setting_of_the_language_model_is_named(folder: Path, settings: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_configuration(written(folder, llm=settings))


def test_what_a_run_records_holds_no_password() -> None:
    urls = {"base_url": "https://me:a-password@host/v1", "proxy": "http://me:a-password@proxy:1"}
    settings = Configuration.model_validate({"llm": urls})
    assert "a-password" not in settings.model_dump_json()
    assert "a-password" not in str(settings.model_dump(mode="json"))
    assert settings.llm.base_url == urls["base_url"]
    assert pickle.loads(pickle.dumps(settings)).llm.proxy == urls["proxy"]  # noqa: S301 - made here
    assert "a-password" not in str(settings.published())


def test_what_reads_a_document_has_memory_for_it(folder: Path) -> None:
    corpus = {"paths": ["docs"], "max_document_bytes": 100_000_000}
    assert load_configuration(written(folder, corpus=corpus)).corpus is not None
    with pytest.raises(ConfigurationError, match=r"max_reading_memory_bytes is 500000000.*raise the former"):
        load_configuration(written(folder, corpus={**corpus, "max_reading_memory_bytes": 500_000_000}))
