"""Imports without collection of garbage."""

import gc
from importlib import import_module

import pytest

from fullrank.common.imports import collecting_later


def missing() -> None:
    with collecting_later():
        assert not gc.isenabled()
        import_module("fullrank.no_such_module")


@pytest.mark.parametrize("before", [True, False])
def test_collection_is_left_as_it_was_even_if_an_import_fails(before: bool) -> None:
    enabled = gc.isenabled()
    (gc.enable if before else gc.disable)()
    try:
        with pytest.raises(ModuleNotFoundError):
            missing()
        assert gc.isenabled() is before
    finally:
        (gc.enable if enabled else gc.disable)()
        gc.unfreeze()
