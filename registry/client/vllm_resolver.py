"""A resolver for vLLM (`vllm.general_plugins`): a request for `CHANNEL@gN` gets that generation from the registry.

vLLM loads it where it is installed; nothing else imports it, and it imports vLLM by name only when it registers itself.
A name without a generation is not answered: vLLM keeps what it loaded under a name, and its prefix cache with it, so
one name must be one set of bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pydantic_settings import BaseSettings, SettingsConfigDict

from registry.client.connect import connect
from registry.client.interface import Registry
from registry.errors import Problem, ProblemError, RefusedError
from registry.service.export import Form
from registry.settings import Settings, load_settings
from schemas.digests import PREFIX
from schemas.names import ChannelRef, parse_ref

RESOLVER_NAME: Final = "adapter-registry"
_ID_DIGITS: Final = 13
"""Hexadecimal digits of a generation's cache identity that number its adapter, unequal for any two, below 2^53."""
_log = logging.getLogger(__name__)


class ResolverSettings(BaseSettings):
    """`REGISTRY_VLLM_BASE`, the reference of the base that vLLM serves, and `REGISTRY_VLLM_DIRECTORY` for adapters."""

    model_config = SettingsConfigDict(env_prefix="REGISTRY_VLLM_", extra="ignore", frozen=True)

    base: str | None = None
    directory: Path | None = None


@dataclass(frozen=True)
class RegistryResolver:
    """vLLM's `LoRAResolver`, by its interface.

    Attributes:
        settings: where the registry is: here, or behind a server.
        base: reference of the base vLLM serves; adapters of another are not answered.
        directory: where generations are written, each under a name of its own.
        request: vLLM's `LoRARequest`.
    """

    settings: Settings
    base: str
    directory: Path
    request: Callable[..., object]

    async def resolve_lora(self, base_model_name: str, lora_name: str) -> object | None:
        """The request for a generation, written to the directory first where it is not there yet.

        Returns:
            A `LoRARequest`, or null for a name that is no generation, an unknown one, or one vLLM cannot load.
        """
        return await asyncio.to_thread(self._resolve, base_model_name, lora_name)

    def _resolve(self, base_model_name: str, lora_name: str) -> object | None:
        try:
            ref = parse_ref(f"channel:{lora_name}")
            if not isinstance(ref, ChannelRef) or ref.generation is None:
                return None
            with connect(self.settings) as registry:
                self._check_base(registry, f"channel:{lora_name}")
                form = Form(base_model_name, "plain-lora")
                made = registry.ensure(f"channel:{lora_name}", self.directory, form)
        except ProblemError as error:
            _log.warning("%s is not served: %s", lora_name, error)
            return None
        assert made.kv_identity is not None, "a generation has one"
        number = int(made.kv_identity.removeprefix(PREFIX)[:_ID_DIGITS], 16) + 1
        return self.request(lora_name=lora_name, lora_int_id=number, lora_path=made.directory)

    def _check_base(self, registry: Registry, ref: str) -> None:
        """A server with another base would answer with weights that mean nothing to it."""
        served, expected = registry.show(ref).manifest["base"], registry.show(self.base).digest
        if served != expected:
            hint = "Send it to a server of its own base, or set REGISTRY_VLLM_BASE to what this server serves."
            raise RefusedError(
                Problem(code="BASE_NOT_SERVED", path=(ref,), expected=expected, observed=str(served), hint=hint)
            )


def register() -> None:
    """Entry point of `vllm.general_plugins`: offer the resolver to vLLM, once a process.

    Without both settings there is nothing to offer.
    """
    chosen = ResolverSettings()
    if chosen.base is None or chosen.directory is None:
        return
    interface: Any = import_module("vllm.lora.resolver")
    request: Callable[..., object] = import_module("vllm.lora.request").LoRARequest
    resolver = RegistryResolver(load_settings({}), chosen.base, chosen.directory, request)
    interface.LoRAResolver.register(RegistryResolver)
    if RESOLVER_NAME not in interface.LoRAResolverRegistry.get_supported_resolvers():
        interface.LoRAResolverRegistry.register_resolver(RESOLVER_NAME, resolver)
