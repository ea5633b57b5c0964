"""Legal examples in small: a Llama-like base, plain adapters on it and a spec over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from schemas.adapter import AdapterManifest, FactorManifest, ScaleRule, make_scale, sorted_factors
from schemas.architectures import LlamaArchitecture, Rope
from schemas.base import BaseManifest, TensorRef, TokenizerRef, WeightRef, weights_digest
from schemas.composition import ResolvedMember, ResolvedSpec, in_identity_order
from schemas.decision import Decision
from schemas.digests import Digest, blob_digest
from schemas.methods import Choices, Lane, Method, Space
from schemas.model import NotVerified
from schemas.quantizers import BitsAndBytes4Quantizer, Quantizer, ScaleLevel
from validators import decide

Shape = tuple[int, int]
SHAPES: Mapping[str, Shape] = {"layers.0.q_proj": (8, 6), "layers.0.v_proj": (4, 6), "layers.1.q_proj": (8, 6)}
TOKENIZER = TokenizerRef(digest=blob_digest(b"tokenizer"), length=100)
ARCHITECTURE = LlamaArchitecture(
    model_type="llama",
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    intermediate_size=12,
    hidden_act="silu",
    rms_norm_eps=1e-5,
    max_position_embeddings=64,
    rope=Rope(rope_type="default", rope_theta=10000.0, parameters={}),
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=True,
    vocab_size=100,
)


def tensor(label: str, *shape: int, dtype: str = "F32") -> TensorRef:
    """A tensor whose content is its label."""
    return TensorRef(tensor=blob_digest(label.encode()), dtype=dtype, shape=shape)


def weight_map(shapes: Mapping[str, Shape], label: str = "w", *, read: bool = True) -> dict[str, WeightRef]:
    """Base weights of these shapes; unread ones have no digest."""
    return {
        f"{module}.weight": WeightRef(
            tensor=blob_digest(f"{label} {module}".encode()) if read else "not_verified", dtype="F32", shape=shape
        )
        for module, shape in shapes.items()
    }


def make_base(
    weights: dict[str, WeightRef] | NotVerified | None = None,
    *,
    architecture: LlamaArchitecture = ARCHITECTURE,
    tokenizer: TokenizerRef | None = TOKENIZER,
    quantizer: Quantizer | Literal["none", "not_verified"] = "none",
) -> BaseManifest:
    """A base over `SHAPES`, or over other weights."""
    chosen = weight_map(SHAPES) if weights is None else weights
    return BaseManifest(
        weights=chosen,
        weights_digest=weights_digest(chosen),
        architecture=architecture,
        tokenizer=tokenizer or "none",
        quantizer=quantizer,
    )


def packed(codebook: bytes = b"nf4", *, centred: bool = True) -> BitsAndBytes4Quantizer:
    """Every module in four-bit codes, under nested scales."""
    nested = ScaleLevel(block=256, dtype="F32", codebook="none", centred=False)
    level = ScaleLevel(block=64, dtype="U8", codebook=blob_digest(b"scales"), centred=centred)
    return BitsAndBytes4Quantizer(
        scheme="bitsandbytes_4bit",
        quant_type="nf4",
        codebook=blob_digest(codebook),
        scales=(level, nested),
        dtype="BF16",
        packed=dict(SHAPES),
    )


def make_factor(
    base: Digest,
    module: str,
    shape: Shape,
    *,
    label: str = "adapter",
    rank: int = 2,
    alpha: float = 4.0,
    rule: ScaleRule = "alpha_over_r",
    **fields: Any,
) -> FactorManifest:
    """One module's pair for a weight [d_out, d_in]."""
    return FactorManifest(
        base=base,
        module=module,
        a=fields.pop("a", tensor(f"{label} {module} a", rank, shape[1])),
        b=fields.pop("b", tensor(f"{label} {module} b", shape[0], rank)),
        rank=rank,
        scale=make_scale(alpha, rule, rank),
        source="lora",
        **fields,
    )


def make_adapter(
    base: BaseManifest,
    label: str = "adapter",
    *,
    shapes: Mapping[str, Shape] = SHAPES,
    factor: Mapping[str, Any] | None = None,
    **fields: Any,
) -> AdapterManifest:
    """An adapter with one plain factor for each module."""
    digest = base.digest
    factors = [
        make_factor(digest, module, shape, **{"label": label, **(factor or {})}) for module, shape in shapes.items()
    ]
    return AdapterManifest(base=digest, factors=sorted_factors(factors), **{"family": "lora", **fields})


def make_spec(
    base: BaseManifest,
    *adapters: AdapterManifest,
    weights: tuple[float, ...] | None = None,
    lane: Lane = "static_fusion",
    method: Method = "cat",
    space: Space | None = "delta",
    choices: Choices | None = None,
    alias: str | None = None,
    acknowledge: tuple[str, ...] = (),
) -> ResolvedSpec:
    """A spec over adapters, by default their plain sum."""
    coefficients = weights or (1.0,) * len(adapters)
    members = tuple(
        ResolvedMember(adapter=adapter.digest, weight=weight)
        for adapter, weight in zip(adapters, coefficients, strict=True)
    )
    return ResolvedSpec(
        base=base.digest,
        lane=lane,
        members=in_identity_order(lane, members),
        method=method,
        alias=alias,
        space=space,
        choices=choices or Choices(),
        acknowledge=acknowledge,
    )


def judge(
    base: BaseManifest,
    *adapters: AdapterManifest,
    others: tuple[BaseManifest, ...] = (),
    repeating: frozenset[Digest] = frozenset(),
    **spec: Any,
) -> Decision:
    """Decide on a spec over these adapters; `others` are the bases of members that have their own."""
    return decide(
        make_spec(base, *adapters, **spec),
        base,
        {adapter.digest: adapter for adapter in adapters},
        {other.digest: other for other in (base, *others)},
        repeating,
    )


def codes(decision: Decision) -> list[str]:
    """The codes of a decision in its order."""
    return [finding.code for finding in decision.findings]
