"""Any configuration is an architecture or a refusal, never another error, and what is accepted has one written form."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from registry.errors import RefusedError
from registry.formats.base.config import read_architecture
from registry.formats.base.packed import quantization_method
from registry.formats.base.rope import ROPE_KEYS
from registry.formats.base.types import CONFIG_TYPES
from schemas.base import BaseManifest

VALUES: Final = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["gelu", "full_attention", "sliding_attention", "yarn", "longrope", "su", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["rope_type", "type", "rope_theta", "factor", "full_attention"]), inner, max_size=3
        )
    ),
    max_leaves=5,
)


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """A model type with a few of its own keys set to anything."""
    model_type = draw(st.sampled_from(sorted(CONFIG_TYPES)))
    facts = CONFIG_TYPES[model_type]
    keys = sorted(facts.fields.keys() | facts.keys | facts.names.keys() | ROPE_KEYS | {"quantization_config", "x"})
    chosen = draw(st.dictionaries(st.sampled_from(keys), VALUES, max_size=6))
    return {"model_type": model_type} | chosen


@given(configs())
def test_any_config_is_an_architecture_or_a_refusal(document: dict[str, Any]) -> None:
    try:
        found = read_architecture(document)
        quantization_method(document)
    except RefusedError:
        return
    base = BaseManifest(weights="not_verified", weights_digest="not_verified", architecture=found, tokenizer="none")
    assert BaseManifest.parse(base.canonical()) == base
