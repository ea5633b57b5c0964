"""PEFT's tensor names: ``base_model.model.<module>.lora_A[.<slot>].weight`` becomes a module and a role.

The slot name is how one process called the adapter; it is no identity, but one file holds one slot. Wrappers nested on
one module (`.base_layer.`) are its depth: PEFT stacks them where several parameters of one module are adapted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from registry.formats.report import problem, shown
from schemas.errors import Problem

ROOT: Final = "base_model.model."
WEIGHTS: Final = "adapter_model.safetensors"
_SLOT: Final = r"(?:\.(?P<slot>[^.]+))?"
_FORMS: Final = tuple(
    (role, re.compile(rf"(?P<module>.+)\.{form}"))
    for role, form in (
        ("a", rf"lora_A{_SLOT}\.weight"),
        ("b", rf"lora_B{_SLOT}\.weight"),
        ("bias", rf"lora_B{_SLOT}\.bias"),
        ("a", rf"lora_embedding_A{_SLOT}"),
        ("b", rf"lora_embedding_B{_SLOT}"),
        # Refactored from a parameter into a layer; the name of the file stayed without `.weight`, mostly.
        ("magnitude", r"lora_magnitude_vector(?:\.(?P<slot>(?!weight$)[^.]+))?(?:\.weight)?"),
        ("diag", rf"lora_diag{_SLOT}"),
        ("tokens", rf"token_adapter\.trainable_tokens_delta{_SLOT}"),
    )
)
_BARE_FORMS: Final = tuple(
    (role, re.compile(rf"(?P<module>.+)\.{form}"))
    for role, form in (
        ("a", rf"lora_A{_SLOT}"),
        ("b", rf"lora_B{_SLOT}"),
        ("E", rf"lora_E{_SLOT}"),
        ("ranknum", rf"ranknum{_SLOT}"),
    )
)
"""AdaLoRA keeps parameters, not layers."""
_STATE: Final = re.compile(r".+\.lora_velora_embed(?:\.[^.]+)?")
"""State of a backward pass: it changes no output, so it stays in the file and out of the manifest."""
_SAVED: Final = re.compile(r"(?P<module>.+)\.modules_to_save(?:\.(?P<slot>[^.]+))?\.(?P<rest>[^.]+)")
_FEATURES: Final = (
    (re.compile(r"\.lora_E\b|\.ranknum\b"), "AdaLoRA triplets"),
    (re.compile(r"\.lora_[AB]\d|\.lora_route\b|\.loranew_"), "routed or sequential experts"),
    (re.compile(r"\.hada_|\.lokr_|\.vera_lambda_|\.oft_|\.ia3_|\.lora_monteclora|\.lora_arrow"), "another method"),
    (re.compile(r"\.original_module\."), "a copy of a module before training"),
    (re.compile(r"\.trainable_tokens_original"), "a copy of token rows before training"),
)


ROLE_NAMES: Final = {
    "a": "lora_A", "b": "lora_B", "bias": "lora_B.bias", "magnitude": "lora_magnitude_vector", "diag": "lora_diag",
    "E": "lora_E", "ranknum": "ranknum",
}  # fmt: skip


class Site(NamedTuple):
    """A module of the file, and how many wrappers lie outside the one that holds the tensors."""

    module: str
    depth: int = 0


@dataclass(frozen=True)
class Keys:
    """Tensor names by site and role; whole tensors and token rows by the base's name; training state; the slot."""

    factors: Mapping[Site, Mapping[str, str]]
    whole: Mapping[str, str]
    tokens: Mapping[str, str]
    state: tuple[str, ...]
    slot: str | None
    problems: tuple[Problem, ...]


def read_keys(names: Iterable[str], *, bare: bool = False) -> Keys:
    """Sort tensor names into factors and parts.

    Args:
        names: of the file.
        bare: whether factors are stored as AdaLoRA does.

    Problems: `KEY_UNKNOWN`, `KEY_UNSUPPORTED` (with the feature), `SLOTS_MIXED`.
    """
    table = _Table(bare)
    for name in sorted(names):
        table.add(name)
    return table.keys()


class _Table:
    """Names sorted so far."""

    def __init__(self, bare: bool) -> None:
        self._forms = (*_FORMS, *_BARE_FORMS) if bare else _FORMS
        self._factors: dict[Site, dict[str, str]] = {}
        self._whole: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._state: list[str] = []
        self._slots: set[str | None] = set()
        self._problems: list[Problem] = []

    def add(self, name: str) -> None:
        inside = name.removeprefix(ROOT)
        if inside == name:
            self._problems.append(_unknown(name))
            return
        for role, form in self._forms:
            match = form.fullmatch(inside)
            if match is not None:
                self._put(role, match["module"], match["slot"], name)
                return
        if _STATE.fullmatch(inside):
            self._state.append(name)
        else:
            self._add_whole(inside, name)

    def _put(self, role: str, module: str, slot: str | None, name: str) -> None:
        self._slots.add(slot)
        roles = self._tokens if role == "tokens" else self._factors.setdefault(_site(module), {})
        key = module if role == "tokens" else role
        if key in roles and len(self._slots) == 1:
            self._problems.append(_unknown(name))
        roles[key] = name

    def _add_whole(self, inside: str, name: str) -> None:
        """A tensor that is no factor replaces one of the base, where the config says that it may."""
        feature = next((feature for pattern, feature in _FEATURES if pattern.search(name)), None)
        if feature is not None:
            hint = f"This holds {feature}, which is not read; save a plain LoRA without it."
            expected = "the tensors of one LoRA adapter"
            self._problems.append(problem("KEY_UNSUPPORTED", (WEIGHTS, name), expected, feature, hint))
        elif ".lora_" in name or name.startswith(f"{ROOT}lora_"):
            self._problems.append(_unknown(name))
        else:
            saved = _SAVED.fullmatch(inside)
            plain = inside if saved is None else f"{saved['module']}.{saved['rest']}"
            self._whole[plain.replace(".base_layer.", ".")] = name

    def keys(self) -> Keys:
        problems = list(self._problems)
        if len(self._slots) > 1:
            hint = "Save each adapter into a directory of its own."
            observed = shown(sorted(map(str, self._slots)))
            problems.append(problem("SLOTS_MIXED", (WEIGHTS,), "one adapter slot", observed, hint))
        return Keys(
            self._factors, self._whole, self._tokens, tuple(self._state), next(iter(self._slots), None), tuple(problems)
        )


def _site(module: str) -> Site:
    outer = module
    while outer.endswith(".base_layer"):
        outer = outer.removesuffix(".base_layer")
    return Site(outer, (len(module) - len(outer)) // len(".base_layer"))


def _unknown(name: str) -> Problem:
    expected = f"{ROOT}<module>.lora_A.weight or lora_B.weight"
    hint = "Save the adapter with PEFT's save_pretrained; a tensor that is not understood cannot be dropped."
    return problem("KEY_UNKNOWN", (WEIGHTS, name), expected, shown(name), hint)
