"""Conversion manifests: each rule has what it needs, and nothing is converted into itself."""

from __future__ import annotations

import pytest

from schemas.canonical import JsonValue
from schemas.conversion import ConversionManifest
from schemas.errors import RefusedError
from schemas.model import validate
from tests.schemas.chain import conversion_document, digest_of

DOCUMENT = conversion_document(digest_of("base"), digest_of("parent"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rule": "portable", "initial": None}, "names the initial snapshot"),
        ({"store": None}, "a cast names its dtype"),
        ({"acknowledged": ["B_CODE", "A_CODE"]}, "sorted, each once"),
        ({"acknowledged": ["A_CODE", "A_CODE"]}, "sorted, each once"),
        ({"output": DOCUMENT["parent"]}, "is no conversion"),
        ({"rule": "average"}, "'portable', 'compact'"),
    ],
)
def test_a_conversion_is_refused_without_what_its_rule_needs(changes: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(RefusedError, match="MANIFEST_INVALID") as refused:
        validate(ConversionManifest, DOCUMENT | changes)
    assert said in str(refused.value)


def test_a_rule_without_needs_leaves_its_fields_empty() -> None:
    changes: dict[str, JsonValue] = {"rule": "compact", "operator": "compact/1", "initial": None, "store": None}
    assert validate(ConversionManifest, DOCUMENT | changes).initial is None
