"""The extra of indexmill that installs each optional package, and the error for a missing package."""

from __future__ import annotations

from indexmill.errors import ModelUnavailable

_EXTRAS = {
    "faiss": "query",
    "openvino": "query",
    "tokenizers": "query",
    "httpx2": "answer",
    "cryptography": "signed",
    "deltalake": "lake",
    "duckdb": "sql",
    "haystack": "haystack",
    "jinja2": "pages",
    "langchain_core": "langchain",
    "llama_index": "llamaindex",
    "obstore": "cloud",
    "tenacity": "cloud",
    "openai": "answer",
    "markupsafe": "pages",
    "mcp": "mcp",
    "nncf": "int8",
    "openlineage": "lineage",
    "prometheus_client": "serve",
    "psycopg": "sql",
    "pyiceberg": "lake",
    "sentence_transformers": "rerank",
    "starlette": "serve",
    "uvicorn": "serve",
    "torch": "rerank",
    "transformers": "rerank",
    "xberg": "formats",
}
"""The extra of each package that a reader may need; all other packages are in the extra ``pipeline``."""

_BY_THEMSELVES = {"yaml": "pyyaml", "socksio": "socksio"}
"""The names for pip, by import name, of pipeline packages that a reader may need on their own."""


def install(package: str, extra: str = "") -> str:
    """Return the command that installs an importable package. extra: the extra to use if several contain it."""
    if extra:
        return f"pip install 'indexmill[{extra}]'"
    package = package.partition(".")[0]
    if package in _BY_THEMSELVES:
        return f"pip install {_BY_THEMSELVES[package]}"
    return f"pip install 'indexmill[{_EXTRAS.get(package, 'pipeline')}]'"


def not_installed(
    what: str, package: str, error: ImportError | None = None, instead: str = "", extra: str = ""
) -> ModelUnavailable:
    """Return the error for a required package that cannot be imported.

    package: the imported package; if ``error`` names another missing package, that one is reported. instead: an
    alternative to installing it, such as "set llm.backend to extractive". extra: as for ``install``.
    """
    command = install(package, extra)
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        in_extra = package in _EXTRAS and not extra
        if in_extra or package in _BY_THEMSELVES:  # else it is in the extra of the imported package
            command = install(package)
    broken = error is not None and not isinstance(error, ModuleNotFoundError)
    state = f"cannot be imported ({error})" if broken else "is not installed"
    return ModelUnavailable(
        f"{what} needs the package {package}, which {state}: {command}{f', or {instead}' if instead else ''}"
    )
