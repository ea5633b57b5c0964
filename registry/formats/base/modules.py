"""The layers of a base, read off its weights: kind, shape and where they are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from registry.errors import RefusedError
from registry.formats.base.naming import MODEL_TYPES, ModelType
from registry.formats.report import problem
from schemas.base import BaseManifest, WeightRef
from schemas.quantizers import PackedWeights
from schemas.stacks import Stack

Kind = Literal["linear", "embedding", "conv1d", "conv2d", "parameter"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A module with a weight that an adapter can change, or a parameter of two or more dimensions by its own name.

    Attributes:
        kind: `linear` [d_out, d_in], `embedding` [rows, d], `conv1d` [d_in, d_out], `conv2d` [d_out, d_in, kh, kw],
            `parameter` as it is.
        shape: of the weight in elements, also where it is stored packed.
        weights: names of the base weights that hold it: the table's for a tied output, many for stacked experts.
        optional: a Linear layer in some releases of transformers only (experts and gates of a mixture), so that
            `all-linear` may have taken it or not.
        oriented: a stacked parameter known to be [experts, d_out, d_in], also where it is square.
    """

    kind: Kind
    shape: Shape
    weights: tuple[str, ...]
    optional: bool = False
    oriented: bool = False


def layers(base: BaseManifest) -> dict[str, Layer]:
    """Every layer by module name, parameters by their own; stored names, and stacked experts by their loaded names too.

    Raises:
        RefusedError: `BASE_SHAPES_UNKNOWN` for a base whose headers were never read.
    """
    facts = MODEL_TYPES[base.architecture.model_type]
    shapes = weight_shapes(base)
    packed = _packed(base)
    shapes = {name: shape for name, shape in shapes.items() if _owner(name) not in packed}
    found = dict(_layer(facts, name, shape) for name, shape in shapes.items() if len(shape) > 1)
    found |= packed | dict(_tied_outputs(facts, shapes))
    return found | (_stacked(facts.stack, shapes) if facts.stack else {})


def weight_shapes(base: BaseManifest) -> dict[str, Shape]:
    """The shape of every weight in elements; `BASE_SHAPES_UNKNOWN` where no header was read."""
    if isinstance(base.weights, str):
        hint = "Register the base with evidence `structural` or `content`."
        expected, observed = "a base whose weight shapes are known", "evidence `declared`"
        raise RefusedError(problem("BASE_SHAPES_UNKNOWN", ("base",), expected, observed, hint))
    return {name: ref.shape for name, ref in base.weights.items()}


def distinct_weights(stored: Mapping[str, WeightRef], model_type: str, *, tied: bool) -> dict[str, WeightRef]:
    """The weights of identity: names verbatim, without buffers, tied copies once.

    Raises:
        RefusedError: `TIED_WEIGHTS_DIFFER` when the config ties two tensors that are stored with other numbers.
    """
    facts = MODEL_TYPES[model_type]
    weights = {name: ref for name, ref in stored.items() if not facts.buffers.fullmatch(name)}
    for copy, original in facts.tied.items():
        if not tied or copy not in weights or original not in weights:
            continue
        if weights[copy] != weights[original]:
            hint = "Set tie_word_embeddings to what the weights are, or save the model again."
            raise RefusedError(problem("TIED_WEIGHTS_DIFFER", (copy,), f"a copy of {original}", "another tensor", hint))
        del weights[copy]
    return weights


def output_modules(base: BaseManifest) -> tuple[str, ...]:
    """The output embeddings, which `all-linear` leaves out."""
    return MODEL_TYPES[base.architecture.model_type].outputs


def _packed(base: BaseManifest) -> dict[str, Layer]:
    """Linear layers stored as codes, scales and codebooks, by their weight's own shape."""
    if not isinstance(base.quantizer, PackedWeights) or isinstance(base.weights, str):
        return {}
    parts: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(base.weights):
        parts[_owner(name)].append(name)
    return {module: Layer("linear", shape, tuple(parts[module])) for module, shape in base.quantizer.packed.items()}


def _owner(name: str) -> str:
    """The module a stored tensor belongs to: bitsandbytes hangs its parts below ``<module>.weight``."""
    return name.partition(".weight.")[0] if ".weight." in name else name.rpartition(".")[0]


def _layer(facts: ModelType, name: str, shape: Shape) -> tuple[str, Layer]:
    module, dot, end = name.rpartition(".")
    leaf = module.rpartition(".")[2]
    if not dot or end != "weight" or len(shape) not in {2, 4}:
        oriented = facts.stack is not None and facts.stack.parts(name) is not None
        return name, Layer("parameter", shape, (name,), oriented=oriented)
    if len(shape) == 4:
        return module, Layer("conv2d", shape, (name,))
    if leaf in facts.embeddings:
        return module, Layer("embedding", shape, (name,))
    if leaf in facts.conv1d:
        return module, Layer("conv1d", shape, (name,))
    stacked = facts.stack is not None and facts.stack.pattern.fullmatch(name) is not None
    return module, Layer("linear", shape, (name,), optional=stacked or leaf in facts.routers)


def _tied_outputs(facts: ModelType, shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Layer]]:
    """Outputs without a weight of their own use the table they are tied to."""
    for copy, table in facts.tied.items():
        module, _, end = copy.rpartition(".")
        if end == "weight" and copy not in shapes and table in shapes:
            yield module, Layer("linear", shapes[table], (table,))


def _stacked(stack: Stack, shapes: Mapping[str, Shape]) -> dict[str, Layer]:
    """Experts stored one by one as the parameters [experts, d_out, d_in] that newer releases stack them to."""
    found: defaultdict[str, dict[tuple[int, str], str]] = defaultdict(dict)
    for name in shapes:
        match = stack.pattern.fullmatch(name)
        if match is not None:
            found[match["before"]][int(match["expert"]), match["leaf"]] = name
    return {
        before + loaded: _stack(experts, leaves, shapes)
        for before, experts in found.items()
        for loaded, leaves in stack.loaded.items()
        if _complete(experts, leaves, shapes)
    }


def _complete(experts: Mapping[tuple[int, str], str], leaves: tuple[str, ...], shapes: Mapping[str, Shape]) -> bool:
    """Whether every expert has every leaf, each leaf in one shape, so that they stack."""
    numbers = {expert for expert, _ in experts}
    return numbers == set(range(len(numbers))) and all(
        len({shapes[experts[number, leaf]] if (number, leaf) in experts else () for number in numbers}) == 1
        and (0, leaf) in experts
        for leaf in leaves
    )


def _stack(experts: Mapping[tuple[int, str], str], leaves: tuple[str, ...], shapes: Mapping[str, Shape]) -> Layer:
    numbers = sorted({expert for expert, _ in experts})
    names = tuple(experts[number, leaf] for number in numbers for leaf in leaves)
    rows = sum(shapes[experts[0, leaf]][0] for leaf in leaves)
    return Layer("parameter", (len(numbers), rows, *shapes[names[0]][1:]), names, oriented=True)
