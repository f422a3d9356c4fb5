# make demo     create .venv, install, build an index of the sample corpus, ask it a question
# make test     create .venv, install, run the tests
# make test-slow  the tests that take more than a second of processor time, and property tests with many examples
# make mutants ROOM=storage/lease.py  mutation tests: whether the tests notice changes of a room or module (minutes)
# make acceptance  the installed commands on real documents, where ../shared/data is there (minutes)
# make lint     ruff and mypy
# make dist     both wheels, in dist/: the reader, and the pipeline
# make release VERSION=1.2.0  commit the version, and make its wheels, bill of materials and checksums in dist/
# make docs     the documentation site, in site/; a broken link fails
# make vendor   compare the JavaScript of the explorer with npm

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo
# What `make mutants` changes, and which of its mutants: those whose number ends so, a digit a tenth.
ROOM ?= storage
DIGITS ?= 7

.PHONY: install demo test test-slow acceptance mutants lint dist release docs vendor clean

install: $(INSTALLED)

# torch comes first and pinned: an unpinned torch pulls gigabytes of CUDA. Compiled at the end: where Python is told to
# write no bytecode, every process of a build would compile all modules again.
$(INSTALLED): pyproject.toml infra/wheel/pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[pipeline,dev]" -e infra/wheel
	$(BIN)/python -m compileall -q -j 0 indexmill schemas storage tasks flows indexmill_pipeline
	touch $(INSTALLED)

demo: install
	rm -rf $(DEMO)
	$(BIN)/indexmill init $(DEMO)
	cd $(DEMO) && ../$(BIN)/indexmill build
	cd $(DEMO) && ../$(BIN)/indexmill query "Who is the paternal grandfather of the person who photographed the Kelvergate Dock Strike?" -k 3 --explain

# Three processes, since a tenth of the time of tests is waiting; each takes a module at a time, so that no fixture of a
# module is set up twice. Compiled, and with bytecode of the tests: else every process that they start would compile all
# modules again.
test: install
	$(BIN)/python -m compileall -q -j 0 indexmill schemas storage tasks flows indexmill_pipeline benchmarks tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# Four processes, since a third of the time of slow tests is waiting.
test-slow: install
	INDEXMILL_TESTS=deep PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 4 --dist worksteal -m "slow or deep"

acceptance: install
	$(BIN)/python -m benchmarks.acceptance $(DATA)

mutants: install
	$(BIN)/python -m benchmarks.mutants $(ROOM) --digits $(DIGITS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

dist: install
	rm -rf dist
	$(BIN)/python -m hatchling build -t wheel -d dist
	cd infra/wheel && ../../$(BIN)/python -m hatchling build -t wheel -d ../../dist

release: install
	$(BIN)/python -m infra.release $(VERSION)

# Beside each page lies its Markdown, which llms.txt links to.
docs: install
	$(BIN)/python -m infra.site
	$(BIN)/zensical build --strict --clean
	cp -R build/docs/. site

vendor: install
	$(BIN)/python infra/vendor.py

clean:
	rm -rf $(VENV) $(DEMO) .cache build dist site *.egg-info
