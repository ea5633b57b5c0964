"""Read a PEFT adapter directory into its manifest."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from registry.formats.base.modules import is_embedding, matrix_modules, output_modules
from registry.formats.directory import (
    PICKLE_SUFFIXES,
    TENSOR_SUFFIXES,
    Directory,
    open_directory,
    pickle_problem,
)
from registry.formats.peft.config import CONFIG, LoraSettings, provenance, read_settings
from registry.formats.peft.factors import form_problems, pair_problems, value_problems
from registry.formats.peft.keys import WEIGHTS, FactorKeys, Wrapper, find_wrapper, read_keys
from registry.formats.peft.targets import overlap_problems, rank_of, scale_of, targeted
from registry.formats.readings import AdapterReading, FileReading, Note, Progress
from registry.formats.report import located, problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import ScannedFile, ScannedTensor, file_header, scan_file
from schemas.adapter import AdapterManifest, FactorManifest, sorted_factors
from schemas.base import BaseManifest
from schemas.errors import Problem

KEPT: Final = (
    "README.md", "added_tokens.json", "chat_template.jinja", "merges.txt", "special_tokens_map.json", "tokenizer.json",
    "tokenizer_config.json", "trainer_state.json", "vocab.json", "vocab.txt",
)  # fmt: skip
"""Files producers put beside an adapter: kept as packaging. Others are left alone unless they hold tensors."""
_TARGET_HINT: Final = "Register the adapter against the base it was trained on, under that base's own module names."


def read_adapter(directory: Path, base: BaseManifest, *, progress: Progress | None = None) -> AdapterReading:
    """Read a LoRA or rank-stabilised LoRA adapter of Linear layers.

    Headers, config and base are checked against each other before any tensor is read. Any pickle, and any tensor file
    besides `adapter_model.safetensors`, is refused.

    Raises:
        RefusedError: every rule of this room, as many problems at once as can be seen.
        UsageProblemError: `DIRECTORY_MISSING`.
    """
    checked = open_directory(directory)
    refuse_all(_file_problems(checked))
    document, config_file = checked.read_object(CONFIG)
    settings = read_settings(document)
    entries = {entry.name: entry for entry in file_header(checked, WEIGHTS).tensors}
    keys = read_keys(entries)
    refuse_all(keys.problems)
    wrapper = _check(settings, keys, entries, base)
    scanned = scan_file(checked, WEIGHTS, values=True, progress=progress)
    refuse_all(_change_problems(scanned, entries))
    refuse_all(found for tensor in scanned.tensors for found in value_problems(tensor))
    with located(WEIGHTS):
        manifest = _manifest(settings, keys, wrapper, base, {item.entry.name: item for item in scanned.tensors})
    notes = provenance(document) | _notes(keys, wrapper, scanned)
    kept = (checked.digest_file(name) for name in KEPT if name in checked.names)
    files = sorted((config_file, scanned.file, *kept), key=_by_path)
    locations = tuple(tensor.location(scanned.file) for tensor in scanned.tensors)
    return AdapterReading(manifest, tuple(files), locations, notes)


def _file_problems(directory: Directory) -> list[Problem]:
    problems = []
    for name in sorted(directory.names):
        if name.endswith(PICKLE_SUFFIXES):
            problems.append(pickle_problem(name))
        elif name.endswith(TENSOR_SUFFIXES) and name != WEIGHTS:
            hint = "An adapter is one adapter_model.safetensors; remove the other tensor file."
            problems.append(problem("TENSOR_FILE_UNEXPECTED", (name,), WEIGHTS, shown(name), hint))
    return problems


def _change_problems(scanned: ScannedFile, entries: Mapping[str, TensorEntry]) -> list[Problem]:
    if {tensor.entry.name: tensor.entry for tensor in scanned.tensors} == entries:
        return []
    hint = "Wait until nothing writes to the file, then read it again."
    return [problem("FILE_CHANGED", (WEIGHTS,), "a file that stays as it is while it is read", "another header", hint)]


def _check(settings: LoraSettings, keys: FactorKeys, entries: Mapping[str, TensorEntry], base: BaseManifest) -> Wrapper:
    """Everything the tensors, the config and the base say about each other; returns how names translate."""
    shapes = matrix_modules(base)
    wrapper = find_wrapper(keys.pairs, base, shapes)
    problems = [
        found
        for module in sorted(keys.pairs)
        for found in _module_problems(settings, module, keys, entries, shapes.get(wrapper.base_name(module)), wrapper)
    ]
    problems += _completeness_problems(settings, keys, base, wrapper, shapes)
    problems += overlap_problems(settings, keys.pairs)
    if not keys.pairs:
        problems.append(problem("ADAPTER_EMPTY", (WEIGHTS,), "at least one module", "no tensors", "Save it again."))
    refuse_all(problems)
    return wrapper


def _module_problems(
    settings: LoraSettings,
    module: str,
    keys: FactorKeys,
    entries: Mapping[str, TensorEntry],
    weight: tuple[int, int] | None,
    wrapper: Wrapper,
) -> list[Problem]:
    a, b = entries[keys.pairs[module]["lora_A"]], entries[keys.pairs[module]["lora_B"]]
    if weight is None:
        name = shown(wrapper.base_name(module))
        missing = problem(
            "TARGET_MODULE_MISSING", (WEIGHTS, module), "a Linear layer of the base", f"no {name}", _TARGET_HINT
        )
        return [missing, *form_problems(a), *form_problems(b)]
    return pair_problems(a, b, weight, rank_of(settings, module))


def _completeness_problems(
    settings: LoraSettings, keys: FactorKeys, base: BaseManifest, wrapper: Wrapper, names: Collection[str]
) -> list[Problem]:
    """The file's modules are exactly those the config targets in the base; patterns see the adapter's names."""
    outputs = output_modules(base)
    matrices = {wrapper.adapter_name(name): not is_embedding(base, name) for name in names}
    expected = {
        name for name, linear in matrices.items() if targeted(settings, name, linear=linear, output=name in outputs)
    }
    known = keys.pairs.keys() & matrices.keys()
    missing = [_missing(module) for module in sorted(expected - known)]
    return missing + [_not_targeted(module) for module in sorted(known - expected)]


def _missing(module: str) -> Problem:
    hint = "The save was incomplete, or target_modules names more than was trained."
    path = (CONFIG, "target_modules", module)
    return problem("MODULES_MISSING", path, "factors for every targeted module", "none in the file", hint)


def _not_targeted(module: str) -> Problem:
    hint = "PEFT would drop these tensors without a word; name the module in target_modules."
    return problem("MODULE_NOT_TARGETED", (WEIGHTS, module), "a module that target_modules names", "not named", hint)


def _manifest(
    settings: LoraSettings,
    keys: FactorKeys,
    wrapper: Wrapper,
    base: BaseManifest,
    tensors: Mapping[str, ScannedTensor],
) -> AdapterManifest:
    family = "rslora" if settings.rule == "alpha_over_sqrt_r" else "lora"
    digest = base.digest
    factors = [
        FactorManifest(
            base=digest,
            module=wrapper.base_name(module),
            a=tensors[pair["lora_A"]].ref,
            b=tensors[pair["lora_B"]].ref,
            rank=rank_of(settings, module),
            scale=scale_of(settings, module),
            source=family,
        )
        for module, pair in keys.pairs.items()
    ]
    return AdapterManifest(base=digest, factors=sorted_factors(factors), family=family)


def _notes(keys: FactorKeys, wrapper: Wrapper, scanned: ScannedFile) -> dict[str, Note]:
    b_names = {pair["lora_B"] for pair in keys.pairs.values()}
    zero = all(tensor.all_zero for tensor in scanned.tensors if tensor.entry.name in b_names)
    return {
        "conditions": ("B_ALL_ZERO",) if zero else (),
        "slot": keys.slot,
        "wrapper_rule": wrapper.rule,
    }


def _by_path(file: FileReading) -> str:
    return file.path
