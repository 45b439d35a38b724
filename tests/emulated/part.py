"""A plugin of pytest: of a test of many cases a few, spread evenly over them.

Emulation makes hours of what takes minutes. That no path of the emitter is lost is measured: see
docs/processors.md, which says how to choose anew.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

FEW, ALL = 3, 1000
# How many are kept where others reach what FEW do not, by file under tests/ and function.
MORE = {
    "backend/llvm/test_attention_kernels.py::test_both_passes_equal_numpy_in_double_precision": 8,
    "backend/llvm/test_complexes.py::test_functions_at_special_values": ALL,
    "backend/llvm/test_contract.py::test_other_dtypes": ALL,
    "backend/llvm/test_contract.py::test_sizes_and_transposes": 9,
    "backend/llvm/test_contract_gemv.py::test_few_rows_are_those_of_many": 12,
    "backend/llvm/test_contract_gemv.py::test_keys_and_values_of_a_cache_are_not_packed": ALL,
    "backend/llvm/test_sequence.py::test_products": 5,
    "backend/llvm/test_sequence.py::test_the_bits_are_those_of_the_interpreter": 17,
    "backend/llvm/test_sort.py::test_positions_are_those_of_a_stable_sort": 8,
    "backend/llvm/test_sort.py::test_the_largest_are_those_of_a_stable_sort": 8,
    "lower/test_deduplicate.py::test_sharing_changes_nothing": ALL,
    "lower/test_lower_random.py::test_random_programs": ALL,
    "lower/test_rounded_factors.py::test_other_copies_stay": ALL,
    "lower/test_samples.py::test_samples_agree_with_the_reference": ALL,
    "ops/test_backends.py::test_compiled_code_matches_the_reference": 12,
}
# What is left out before, by parts of names: half a second and more natively, and nothing in it
# that smaller cases do not run.
SLOW = {
    "backend/llvm/test_attention_kernels.py": (
        *("(97", "(128", "(400", "(433", "(1100", "(1500", "(2050", "1201", "128, 128", "256"),
        "with_several_blocks_of_keys",
    ),
    "backend/llvm/test_contract_packing.py": ("lanes_than_registers_are_not_transposed[int",),
    "backend/llvm/test_emit_random.py": ("with_streaming_stores",),
    "backend/llvm/test_factors.py": ("130",),
    "backend/llvm/test_math.py": ("lose_digits", "test_square_roots_are_rounded"),
    "fuzz/test_fuzz.py": ("test_text_and_passes",),
    "lower/test_depth.py": ("[150]", "[400]"),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = set(_kept(items))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _kept(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        function, _, _ = name.partition("[")
        if not any(part in name for part in SLOW.get(name.partition("::")[0], ())):
            cases.setdefault(function, []).append(item)
    files = {function.partition("::")[0] for function in cases}
    for function in MORE:
        if function.partition("::")[0] in files and function not in cases:
            raise pytest.UsageError(f"tests/emulated/part.py: there is no {function}")
    for function, found in cases.items():
        yield from _spread(found, MORE.get(function, FEW))


def _spread(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """The first, the last and what is evenly between them."""
    if len(items) <= count:
        return items
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]
