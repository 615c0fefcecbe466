"""The suite is complete: every verb of the contract is called in it, on every store."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from bullpen.store import Store
from bullpen.stores.verbs.store import VerbStore
from tests.support.stores import STORES

LIFE = {"__aenter__", "__aexit__"}


def verbs_of(contract: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(contract, inspect.isfunction) if not name.startswith("_")}


def test_every_verb_of_the_contract_is_called_in_some_conformance_test() -> None:
    modules = Path(__file__).parent.glob("test_store_*.py")
    text = "\n".join(module.read_text() for module in sorted(modules))
    called = set(re.findall(r"\.(\w+)\(", text)) | set(re.findall(r"store\.(\w+)\b", text))
    missing = verbs_of(Store) - called
    assert not missing, f"no conformance test calls {sorted(missing)}"


def test_the_verbs_are_those_of_the_contract_with_the_same_parameters() -> None:
    for name in verbs_of(Store):
        promised = list(inspect.signature(getattr(Store, name)).parameters.values())[1:]
        given = list(inspect.signature(getattr(VerbStore, name)).parameters.values())[1:]
        assert [(p.name, p.kind, p.default) for p in given] == [(p.name, p.kind, p.default) for p in promised], name
    assert verbs_of(VerbStore) == verbs_of(Store)


def test_the_suite_runs_on_every_store() -> None:
    assert {"sqlite-memory", "sqlite-file", "files", "postgresql"} <= {*STORES}
