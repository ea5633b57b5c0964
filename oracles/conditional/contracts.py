"""The twenty-one fields that make one conditional-compute method, with every word the seven methods use (C 0x08A)."""

from typing import Literal

from oracles.model import Fixture

Method = Literal["moa", "switchhead", "mod_training", "mod_decode", "staged", "integrated", "moe_llava"]
ContractField = Literal[
    "routed_object",
    "decision_unit",
    "selection_population",
    "selection_owner",
    "score_transform",
    "selection_policy",
    "admission_policy",
    "randomness_state",
    "capacity_unit",
    "route_weight",
    "residual_location",
    "attention_execution",
    "ffn_execution",
    "backward_boundary",
    "training_to_decode",
    "route_metadata",
    "kv_row_policy",
    "kv_payload",
    "padding_router",
    "modality_label",
    "authority",
]

NOT_VERIFIED = "not_verified"
"""A field whose value no source states; it is neither equal nor different."""


class Contract(Fixture):
    """One method; the fields stand in the order of the table of C 0x08A."""

    routed_object: Literal["qo_pair", "srcV_dstO", "whole_block", "block_then_expert", "expert_or_noop", "ffn_expert"]
    decision_unit: Literal[
        "dest_row",
        "row_head_side",
        "seq_layer",
        "token_layer",
        "seq_layer_then_row",
        "post_attn_row",
        "materialized_row",
    ]
    selection_population: Literal[
        "dest",
        "src_and_dst",
        "valid_full_seq",
        "current_row",
        "valid_then_selected",
        "all_valid_post_attn",
        "all_rows_incl_pad",
    ]
    selection_owner: Literal[
        "dest_router",
        "src_and_dst_routers",
        "block_expert_choice",
        "predictor_or_router",
        "block_then_token",
        "combined",
        "gate",
    ]
    score_transform: Literal[
        "softmax_E",
        "sigmoid",
        "raw_linear",
        "sigmoid_logit",
        "raw_then_softmax",
        "softmax_E_noop",
        "softmax_E_gumbel_second",
    ]
    selection_policy: Literal[
        "stable_topk",
        "per_side_topk",
        "stable_topC",
        "strict_threshold",
        "topC_then_top1",
        "stable_argmax",
        "argmax_then_gumbel",
    ]
    admission_policy: Literal[
        "no_capacity",
        "exact_C_is_request",
        "variable_uncapped",
        "depthC_then_policy",
        "noop_is_choice",
        "flat_row_order_capacity",
    ]
    randomness_state: Literal["deterministic", "stored_gumbel"]
    capacity_unit: Literal[
        "k_per_dest",
        "kS_kD_per_row_head",
        "C_per_seq_layer",
        "variable",
        "C_D_per_seq_then_k_per_row",
        "one_per_row",
        "rows_per_expert_batch",
    ]
    route_weight: Literal["p_over_stopped_Z", "raw_sigmoid", "raw_r", "r_times_g", "path_prob", "survivor_renorm"]
    residual_location: Literal[
        "attn_sublayer", "block_delta_scatter", "depth_gated_block_delta", "ffn_residual_noop0", "ffn_residual"
    ]
    attention_execution: Literal["k_maps", "H_A_maps", "C_by_C", "current_q_over_sparse", "C_D_by_C_D", "dense_valid"]
    ffn_execution: Literal["unchanged", "dense_on_selected", "expert_on_selected", "expert_or_zero", "top2_admitted"]
    backward_boundary: Literal[
        "stopped_Z_full_softmax",
        "local_sigmoid",
        "topC_and_raw_gate",
        "stop_grad_predictor",
        "two_hard",
        "full_softmax_incl_noop",
        "frozen_survivors",
    ]
    training_to_decode: Literal[
        "query_local",
        "src_at_insert_dst_at_query",
        "noncausal_teacher",
        "causal_no_exact_C",
        "inherits_and_nested",
        "ordinary_decode",
        "three_stage",
    ]
    route_metadata: Literal[
        "ids_P_Z",
        "src_dst_ids_weights",
        "score_and_chrono_ids_positions",
        "policy_threshold_comparator_receipt",
        "depth_and_expert_state",
        "path_id",
        "top1_gumbel2_order_locations_survivors",
    ]
    kv_row_policy: Literal["all_source", "training_only", "sparse_receipts", "all_valid"]
    kv_payload: Literal[
        "shared_no_expert_axis",
        "head_K_mixed_V",
        "none",
        "ordinary_positions_receipts",
        "ordinary",
        "ordinary_with_projector_side_input",
    ]
    padding_router: Literal["not_verified", "excluded_minus_inf", "current_valid_row", "valid_only", "routed"]
    modality_label: Literal["not_applicable", "analysis_only"]
    authority: Literal[
        "paper+96c33ca", "paper+7169ad3+0bb2f61", "paper+local", "figure7+local", "paper+6cb5f66+deepspeed0.9.5"
    ]


def differing(left: Contract, right: Contract) -> tuple[str, ...]:
    """The fields whose known values differ, in order."""
    pairs = ((name, getattr(left, name), getattr(right, name)) for name in Contract.model_fields)
    return tuple(name for name, a, b in pairs if a != b and NOT_VERIFIED not in (a, b))


def unverified(left: Contract, right: Contract) -> int:
    """How many fields cannot be compared, because a side is not verified."""
    values = ((getattr(left, name), getattr(right, name)) for name in Contract.model_fields)
    return sum(NOT_VERIFIED in pair for pair in values)
