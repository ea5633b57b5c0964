"""From a spec to a stored composition: decide, compose once, store everything in one transaction."""

from __future__ import annotations

from typing import Final

from registry.db import Change, Reader, blobs, files, lineage, manifests, names, records, tensors
from registry.service import decide, resolve, witness
from registry.service.composer import Composed, Progress
from registry.service.context import Context
from registry.service.decide import Question
from registry.service.results import Admitted
from schemas.adapter import AdapterManifest
from schemas.composition import AdmissionManifest, CompositionManifest, ResolvedSpec
from schemas.digests import BlobDigests, Digest
from schemas.methods import OPERATOR_VERSIONS
from schemas.spec import CompositionSpec

OUTPUT_FILE: Final = "adapter.safetensors"


def admit(
    context: Context,
    spec: CompositionSpec,
    *,
    dry_run: bool = False,
    plan: bool = False,
    progress: Progress | None = None,
) -> Admitted:
    """Decide on a spec; store the decision; compose when it proceeds.

    A dry run stores nothing. A plan decides and costs the work without doing it. A refused or unacknowledged decision
    is stored and returned without a composition; `decide.require_proceeding` turns it into an error.
    """
    question = decide.ask(context, spec)
    if plan and question.proceeds:
        cost = context.composer.plan(decide.order_of(context, question.spec))
        return question.answer.model_copy(update={"plan": cost})
    if dry_run or plan:
        return question.answer
    answer = decide.store(context, question)
    if not question.proceeds:
        return answer
    return _compose_once(context, spec.name, question, answer, progress)


def compose_admitted(context: Context, admission: Digest, name: str, progress: Progress | None = None) -> Admitted:
    """Compose what was admitted before, whatever its references mean by now; repeated, it gives the same answer.

    Raises:
        DecisionRefusedError, NotAcknowledgedError: it was not admitted.
    """
    with context.database.reading() as reader:
        stored = manifests.load(reader, admission, AdmissionManifest)
        assert isinstance(stored.spec, ResolvedSpec), "a release has nothing to compose"
    question = Question(stored.spec, stored.decision)
    answer = question.answer.model_copy(update={"admission": admission})
    return _compose_once(context, name, question, decide.require_proceeding(answer), progress)


def _compose_once(
    context: Context, name: str, question: Question, answer: Admitted, progress: Progress | None
) -> Admitted:
    """Compose, unless the same admission was composed before: then only the name is new, if it is."""
    assert answer.admission is not None, "the decision is stored"
    with context.database.reading() as reader:
        known = _composed_before(context, reader, answer.admission)
    if known is not None:
        return _name_known(context, name, known, answer)
    order = decide.order_of(context, question.spec)
    with context.store.scratch.folder() as folder:
        composed = context.composer.compose(order, folder, progress)
        witnesses = witness.reports(composed.families)
        blob = context.store.move_file(composed.file)
    composition = _manifest(question.spec, answer.admission, composed, witnesses)
    return _store(context, name, composition, composed, blob, answer)


def _composed_before(context: Context, reader: Reader, admission: Digest) -> CompositionManifest | None:
    for node in lineage.descendants(reader, admission).nodes:
        if node.depth == 1 and node.kind == CompositionManifest.KIND:
            composition = manifests.load(reader, node.digest, CompositionManifest)
            output = manifests.load(reader, composition.output, AdapterManifest)
            if resolve.all_held(context, reader, resolve.tensors_of(output)):
                return composition
    return None


def _name_known(context: Context, name: str, composition: CompositionManifest, answer: Admitted) -> Admitted:
    def work(change: Change) -> Admitted:
        measured = records.measurements(change, composition.digest)
        ran = records.run_records(change, composition.digest)
        return _named(change, name, composition, answer, created=False).model_copy(
            update={"measurement": measured[-1] if measured else None, "run_record": ran[-1] if ran else None}
        )

    return context.conclude("composition.name", work)


def _store(
    context: Context,
    name: str,
    composition: CompositionManifest,
    composed: Composed,
    blob: BlobDigests,
    answer: Admitted,
) -> Admitted:
    def work(change: Change) -> Admitted:
        manifests.put(change, composed.output)
        created = manifests.put(change, composition)
        _put_output(change, composed, blob)
        records.put_measurement(change, composition.digest, composed.measurement)
        records.put_run_record(change, composition.digest, composed.run_record)
        return _named(change, name, composition, answer, created=created).model_copy(
            update={"measurement": composed.measurement, "run_record": composed.run_record}
        )

    return context.conclude("composition.store", work)


def _put_output(change: Change, composed: Composed, blob: BlobDigests) -> None:
    blobs.put(change, [blob])
    blobs.mark_present(change, [blob.digest])
    files.put(change, composed.output.digest, [(OUTPUT_FILE, blob.digest)])
    tensors.put(
        change,
        [
            tensors.Location(item.tensor, blob.digest, item.offset, item.length, item.dtype, item.shape)
            for item in composed.tensors
        ],
    )


def _named(change: Change, name: str, composition: CompositionManifest, answer: Admitted, *, created: bool) -> Admitted:
    assigned = names.assign(change, name, CompositionManifest.KIND, composition.digest)
    return answer.model_copy(
        update={
            "composition": composition.digest,
            "output": composition.output,
            "name": name,
            "version": assigned.version,
            "created": created,
        }
    )


def _manifest(
    spec: ResolvedSpec, admission: Digest, composed: Composed, witnesses: tuple[Digest, ...]
) -> CompositionManifest:
    assert spec.space is not None, "an admitted spec declares its space"
    return CompositionManifest(
        admission=admission,
        base=spec.base,
        lane=spec.lane,
        members=spec.members,
        method=spec.method,
        alias=spec.alias,
        space=spec.space,
        choices=spec.choices,
        stochastic=composed.stochastic,
        operator=OPERATOR_VERSIONS[spec.method],
        representation="low_rank_factors",
        output=composed.output.digest,
        modules=composed.modules,
        oracle_reports=witnesses,
    )
