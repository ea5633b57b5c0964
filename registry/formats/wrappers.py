"""Named rules by which module names of an adapter are the base's: prefixes of wrapping models, nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from registry.formats.base.naming import MODEL_TYPES, loaded_name


@dataclass(frozen=True)
class Wrapper:
    """``inside`` + rest in the file is ``outside`` + rest in the base; both empty: the names are the same."""

    rule: str
    inside: str = ""
    outside: str = ""

    def base_name(self, name: str) -> str | None:
        """The base's name of what the adapter calls `name`; null where the rule does not speak of it."""
        return self.outside + name.removeprefix(self.inside) if name.startswith(self.inside) else None

    def adapter_name(self, name: str) -> str | None:
        """The adapter's name of what the base calls `name`."""
        return self.inside + name.removeprefix(self.outside) if name.startswith(self.outside) else None


SAME: Final = Wrapper("none")
_LANGUAGE: Final = ("language_model.", "model.language_model.", "model.text_model.", "text_model.")
_RUNTIME: Final = ("_orig_mod.", "module.", "_fsdp_wrapped_module.", "0.auto_model.")


@dataclass(frozen=True)
class Naming:
    """How names of an adapter and a base translate: a wrapper rule, and renamings of a release (stored to loaded)."""

    wrapper: Wrapper
    loaded: Mapping[str, str]

    def base_name(self, name: str) -> str | None:
        """The base's stored name, null where the rule does not speak of it."""
        inner = self.wrapper.base_name(name)
        return inner if inner is None else self._stored.get(inner, inner)

    def adapter_name(self, name: str) -> str | None:
        """The adapter's name of what the base stores as `name`."""
        return self.wrapper.adapter_name(self.loaded.get(name, name))

    @cached_property
    def _stored(self) -> dict[str, str]:
        return {loaded: stored for stored, loaded in self.loaded.items()}


def find_naming(modules: Collection[str], known: Collection[str], model_type: str) -> Naming:
    """The naming under which most modules of an adapter are the base's, the first of equals; the identity if none is.

    What it leaves unmatched is refused by name later, so a partial match never passes.

    Args:
        modules: as the file names them.
        known: as the base stores them.
        model_type: whose prefix and renamings apply.
    """
    stored = frozenset(known)
    if stored.issuperset(modules):
        return Naming(SAME, {})
    renamed = {name: loaded_name(model_type, name) for name in known}
    changed = {stored: loaded for stored, loaded in renamed.items() if stored != loaded}
    rules = tuple(_rules(MODEL_TYPES[model_type].prefix))
    namings = [Naming(rule, names) for names in ({}, changed) if names is not changed or changed for rule in rules]
    return max(namings, key=lambda naming: sum(naming.base_name(name) in stored for name in modules))


def _rules(prefix: str) -> Iterator[Wrapper]:
    yield SAME
    yield _rule(prefix, "")
    yield _rule("", prefix)
    for outer in _LANGUAGE:
        # A multimodal model keeps the language model, bare or with its own head, under one more name.
        for inner in ("", prefix):
            yield _rule(outer, inner)
            yield _rule(inner, outer)
    for outer in _RUNTIME:
        yield _rule(outer, "")
        yield _rule(outer + prefix, "")


def _rule(inside: str, outside: str) -> Wrapper:
    """A rule named after what it takes away and what it puts there."""
    taken, put = (text.removesuffix(".").replace(".", "_") for text in (inside, outside))
    if not outside:
        return Wrapper(f"remove_{taken}_prefix", inside, outside)
    if not inside:
        return Wrapper(f"add_{put}_prefix", inside, outside)
    return Wrapper(f"replace_{taken}_prefix_by_{put}", inside, outside)
