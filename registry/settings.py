"""Settings: flag > REGISTRY_* > project file (registry.toml) > user file > default."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from registry.errors import UsageProblemError
from schemas.model import problems_of

USER_FILE = Path("~/.config/adapter-registry/config.toml").expanduser()
PROJECT_FILE = Path("registry.toml")


class Settings(BaseSettings):
    """Where things lie and who is asking. Flags of the command line arrive as keyword arguments."""

    model_config = SettingsConfigDict(env_prefix="REGISTRY_", extra="forbid", frozen=True)

    home: Path = Field(default=Path("~/.local/share/adapter-registry"), description="database and store by default")
    database_url: str | None = Field(
        default=None,
        pattern=r"^(sqlite:///|postgresql\+psycopg://).+",
        description="sqlite:///… or postgresql+psycopg://…",
    )
    store_url: str | None = Field(default=None, description="a folder or s3://bucket/prefix")
    url: str | None = Field(default=None, description="a registry server; unset means embedded")
    token: SecretStr | None = Field(default=None, description="bearer token for the server")
    principal: str = Field(
        default_factory=getpass.getuser, min_length=1, max_length=256, description="who is named in audit events"
    )
    cache: Path | None = Field(
        default=None, description="folder for verified copies of what an object store holds, and for staging"
    )
    cache_limit: int = Field(default=64 * 2**30, ge=2**20, description="bytes of verified copies that are kept")
    upload_limit: int = Field(
        default=2**37, ge=2**20, le=2**53 - 1, description="bytes of the largest file a server takes"
    )
    webhook_private: bool = Field(
        default=False, description="let webhooks call private, loopback and link-local addresses"
    )
    workers: int = Field(default=2, ge=1, le=64, description="composition workers, one BLAS thread each")
    memory_limit: int = Field(default=8 * 2**30, ge=2**26, description="bytes a composition may hold")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Files below the environment; the project's file over the user's."""
        del dotenv_settings, file_secret_settings
        files = TomlConfigSettingsSource(settings_cls, toml_file=[USER_FILE, PROJECT_FILE])
        return (init_settings, env_settings, files)

    @property
    def home_path(self) -> Path:
        """The home directory, absolute."""
        return self.home.expanduser().absolute()

    @property
    def database(self) -> str:
        """The database URL in use."""
        return self.database_url or f"sqlite:///{self.home_path / 'registry.db'}"

    @property
    def store(self) -> str:
        """The blob store URL in use."""
        return self.store_url or str(self.home_path / "store")


def load_settings(flags: dict[str, Any]) -> Settings:
    """Settings with these flags on top.

    Raises:
        UsageProblemError: `SETTING_INVALID`, one problem a setting.
    """
    try:
        return Settings(**flags)
    except ValidationError as error:
        raise UsageProblemError(*problems_of(error, "SETTING_INVALID")) from error
