"""Handing out: directories that servers load, written beside and renamed, never over something."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args

from registry.db import Reader, channels, manifests
from registry.errors import ConflictError, Problem, UnavailableError
from registry.formats import write_peft, write_plain
from registry.service import dense, resolve
from registry.service.beside import written_beside
from registry.service.context import Context
from registry.service.convert import convert
from registry.service.dense import Handed
from registry.service.engines import EngineName, engine_problems
from registry.service.release import dense_release
from registry.service.results import Exported, FileEntry
from registry.service.wishes import Wish
from registry.storage import hash_file
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest, TensorRef
from schemas.digests import PREFIX, Digest
from schemas.errors import refuse
from schemas.names import ChannelRef, parse_ref
from schemas.publication import PublicationManifest

Profile = Literal["peft", "plain-lora", "dense"]
PROFILES: Final[tuple[Profile, ...]] = get_args(Profile)
CARD: Final = "registry.json"
SHORT: Final = 8
"""Digits of a digest in a directory's name."""


@dataclass(frozen=True)
class Form:
    """How an adapter is handed out.

    Attributes:
        base_name: `base_model_name_or_path` to write: where the server finds the base.
        profile: `peft` as the adapter is, `plain-lora` as a recorded child that readers of alpha / r understand,
            `dense` as the base with the adapter added.
        engine: what will load it; its limits are checked before anything is written.
        max_lora_rank: the rank limit that engine was started with.
    """

    base_name: str
    profile: Profile = "peft"
    engine: EngineName | None = None
    max_lora_rank: int | None = None


@dataclass(frozen=True)
class Generation:
    """The generation an artifact is handed out as."""

    channel: str
    number: int
    publication: Digest
    kv_identity: Digest

    @property
    def label(self) -> str:
        """`CHANNEL@gN`."""
        return f"{self.channel}@g{self.number}"


@dataclass(frozen=True)
class Handout:
    """An artifact ready to be written: the adapter as it goes out, and where its bytes are.

    `conversion` is the record of the form it goes out in; a dense release has one once its weights were written.
    """

    artifact: Digest
    adapter: AdapterManifest
    base: BaseManifest
    conversion: Digest | None
    generation: Generation | None
    label: str
    fill: Callable[[Path], Handed]

    @property
    def name(self) -> str:
        """`NAME@gN-digest8`: one name for each generation and content, since servers cache by name."""
        return f"{self.label}-{short(self.adapter.digest)}"


class Packet(Protocol):
    """An artifact on its way into a directory, wherever its bytes come from."""

    @property
    def name(self) -> str:
        """`NAME@gN-digest8`: one name for each generation and content, since servers cache by name."""
        ...

    @property
    def card(self) -> Mapping[str, object]:
        """What `registry.json` will say, but for the files."""
        ...

    def write(self, folder: Path, beside: Path) -> None:
        """Write config, weights and card into a folder that is empty or not there yet.

        `beside` is a folder on the same disk that stays when this is cut off.
        """
        ...


@dataclass(frozen=True)
class Packed:
    """A packet whose bytes are at hand."""

    handout: Handout
    form: Form

    @property
    def name(self) -> str:
        """See `Packet`."""
        return self.handout.name

    @property
    def card(self) -> dict[str, object]:
        """See `Packet`."""
        return card_of(self.handout, self.form)

    def write(self, folder: Path, beside: Path) -> None:
        """See `Packet`; a dense release is recorded once its weights were written."""
        del beside
        handed = self.handout.fill(folder)
        written = replace(self.handout, conversion=handed.conversion)
        entries = [entry(folder, path).document() for path in handed.files]
        write_card(folder, card_of(written, self.form) | {"files": entries})


def export(context: Context, ref: str, directory: Path, form: Form, *, named: bool = False) -> Exported:
    """Write the adapter a reference means, with `registry.json` beside the weights.

    With `named` the directory is made inside `directory`, under a name that carries generation or version and digest.

    Raises:
        RefusedError: the profile cannot express the adapter, or the engine cannot load it.
        ConflictError: `TARGET_EXISTS`; a directory is never written over, since a server may hold it open.
        UnavailableError: `TARGET_UNWRITABLE`.
    """
    return handed_out(lambda: _packed(context, ref, form), directory, named=named)


def ensure(context: Context, ref: str, folder: Path, form: Form) -> Exported:
    """The directory of a reference inside `folder`, under its name, written unless it is there in this form.

    Raises:
        ConflictError: `TARGET_EXISTS` when something else has that name; and the errors of `export`.
    """
    return ensured(_packed(context, ref, form), folder)


def handed_out(pack: Callable[[], Packet], directory: Path, *, named: bool) -> Exported:
    """Write a packet as a directory that is not there yet; an occupied place is refused before it is packed."""
    if not named:
        refuse_existing(directory)
    packet = pack()
    target = directory / packet.name if named else directory
    refuse_existing(target)
    with written_beside(target) as partial:
        packet.write(partial, target.parent)
    return _written(target)


def ensured(packet: Packet, folder: Path) -> Exported:
    """The directory of a packet inside `folder`, under its name, written unless it is there."""
    target = folder / packet.name
    if not _is_there(target, packet):
        try:
            refuse_existing(target)
            with written_beside(target) as partial:
                packet.write(partial, folder)
        except (ConflictError, UnavailableError):
            # Another process may have written the same generation meanwhile.
            if not _is_there(target, packet):
                raise
    return _written(target)


def _packed(context: Context, ref: str, form: Form) -> Packed:
    with context.database.reading() as reader:
        artifact = resolve.digest_of(reader, ref)
        generation = _generation(reader, ref)
    return Packed(prepare(context, artifact, form, generation), form)


def _is_there(target: Path, packet: Packet) -> bool:
    """Whether a directory is this very packet."""
    card = read_card(target)
    return card is not None and {**card, "files": None} == {**packet.card, "files": None}


def _written(target: Path) -> Exported:
    """What a directory of ours is, by its own card."""
    card = read_card(target) or {}
    generation = card["generation"] or {}
    return Exported(
        directory=str(target),
        artifact=card["artifact"],
        adapter=card["adapter"],
        profile=card["profile"],
        conversion=card["conversion"],
        kv_identity=generation.get("kv_identity"),
        files=tuple(FileEntry.model_validate(item) for item in card["files"]),
    )


def read_card(directory: Path) -> dict[str, Any] | None:
    """The `registry.json` of a directory; null when it is none of ours."""
    try:
        card = json.loads((directory / CARD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return card if isinstance(card, dict) else None


def prepare(context: Context, artifact: Digest, form: Form, generation: Generation | None) -> Handout:
    """Check the profile and the engine, make the plain child where it is asked for, and find every byte."""
    plain = form.profile == "plain-lora"
    with context.database.reading() as reader:
        adapter = resolve.adapter_of(reader, artifact)
        base = manifests.load(reader, adapter.base, BaseManifest)
        label = generation.label if generation else (resolve.names_of(reader, artifact) or ("adapter",))[0]
    # A dense release has no rank, scale or target that an engine could fail to load.
    if form.engine is not None and form.profile != "dense":
        refuse(engine_problems(adapter, base, form.engine, form.max_lora_rank, plain=plain))
    conversion: Digest | None = None
    if plain:
        made = convert(context, artifact, Wish("plain_lora"))
        conversion = made.conversion
        with context.database.reading() as reader:
            adapter = resolve.adapter_of(reader, made.output)
    elif form.profile == "dense":
        with context.database.reading() as reader:
            known = dense.recorded(reader, adapter)
        conversion = None if known is None else known.digest
    fill = _filler(context, adapter, base, form, conversion)
    return Handout(artifact, adapter, base, conversion, generation, label, fill)


def _filler(
    context: Context, adapter: AdapterManifest, base: BaseManifest, form: Form, conversion: Digest | None
) -> Callable[[Path], Handed]:
    """What writes the files of a profile into a folder, with every byte found before."""
    if form.profile == "dense":
        release = dense_release(context, adapter, base)
        return lambda folder: dense.hand_out(context, release, folder)
    with context.database.reading() as reader:
        wanted = [ref for ref in resolve.tensors_of(adapter) if 0 not in ref.shape]
        held = resolve.places(context, reader, wanted)

    def read_tensor(ref: TensorRef) -> bytes:
        if 0 in ref.shape:
            return b""
        place = held[ref.tensor]
        return context.store.read(place.blob, place.offset, place.length)

    def fill(folder: Path) -> Handed:
        writer = write_plain if form.profile == "plain-lora" else write_peft
        return Handed(writer(folder, adapter, base, read_tensor, base_name=form.base_name), conversion)

    return fill


def generation_of(reader: Reader, channel: str, number: int | None = None) -> Generation:
    """A generation of a channel, by default the live one."""
    row = channels.at_head(reader, channel) if number is None else channels.at(reader, channel, number)
    publication = manifests.load(reader, row.publication, PublicationManifest)
    return Generation(row.channel, row.number, row.publication, publication.kv_identity)


def _generation(reader: Reader, ref: str) -> Generation | None:
    """The generation a reference names, when it names one."""
    parsed = parse_ref(ref)
    return generation_of(reader, parsed.channel, parsed.generation) if isinstance(parsed, ChannelRef) else None


def card_of(handout: Handout, form: Form) -> dict[str, object]:
    """What `registry.json` says beside the files: which manifest, which generation, in which form."""
    generation = handout.generation
    return {
        "artifact": handout.artifact,
        "adapter": handout.adapter.digest,
        "conversion": handout.conversion,
        "profile": form.profile,
        "base": handout.base.digest,
        "base_name": form.base_name,
        "generation": None if generation is None else generation_card(generation),
    }


def generation_card(generation: Generation) -> dict[str, str | int]:
    """Channel, number, publication and cache identity."""
    return {
        "channel": generation.channel,
        "generation": generation.number,
        "publication": generation.publication,
        "kv_identity": generation.kv_identity,
    }


def write_card(folder: Path, card: Mapping[str, object]) -> None:
    """Write `registry.json`."""
    (folder / CARD).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")


def short(digest: Digest) -> str:
    """The first digits of a digest, for a directory's name."""
    return digest.removeprefix(PREFIX)[:SHORT]


def refuse_existing(directory: Path) -> None:
    """Refuse a directory that is there already."""
    if directory.exists() or directory.is_symlink():
        raise ConflictError(
            Problem(
                code="TARGET_EXISTS",
                expected="a directory that does not exist yet",
                observed=str(directory),
                hint="Choose another directory; carry the generation in its name.",
            )
        )


def entry(folder: Path, path: Path) -> FileEntry:
    """A written file with its digests."""
    digests = hash_file(path)
    return FileEntry(
        path=path.relative_to(folder).as_posix(), blob=digests.digest, sha256=digests.sha256, size=digests.size
    )
