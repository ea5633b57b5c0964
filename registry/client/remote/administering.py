"""Tokens and webhooks of a server."""

from __future__ import annotations

from collections.abc import Sequence

from registry.client.remote import paths
from registry.client.remote.http import Http
from registry.service import tokens
from registry.service.grants import Scope
from registry.service.tokens import ListedToken, NewToken
from registry.service.webhooks import Deliveries, NewWebhook, Webhook
from schemas.canonical import JsonObject, JsonValue


class Administering:
    """Who may do what, and who is told."""

    http: Http

    def create_token(self, principal: str, allow: Sequence[str], *, expires_s: float | None = None) -> NewToken:
        """Make a bearer token that allows these scopes, for so many seconds; its secret is shown once."""
        tokens.check(principal, expires_s)
        scopes = [str(Scope.parse(text)) for text in allow]
        body: JsonObject = {"principal": principal, "allow": list[JsonValue](scopes), "expires_s": expires_s}
        return self.http.post(NewToken, "/v1/tokens", body, again=False)

    def tokens(self) -> tuple[ListedToken, ...]:
        """Every token by id, without its secret."""
        return self.http.get_all(ListedToken, "/v1/tokens")

    def revoke_token(self, token: str) -> None:
        """Revoke a token by its id."""
        self.http.delete(paths.of_id("tokens", token))

    def add_webhook(self, url: str, channel: str = "") -> NewWebhook:
        """Tell a URL of new generations of channels that begin so; its secret is shown once."""
        return self.http.post(NewWebhook, "/v1/webhooks", {"url": url, "channel": channel}, again=False)

    def webhooks(self) -> tuple[Webhook, ...]:
        """Every webhook, without its secret."""
        return self.http.get_all(Webhook, "/v1/webhooks")

    def remove_webhook(self, webhook: str) -> None:
        """Remove a webhook by its id."""
        self.http.delete(paths.of_id("webhooks", webhook))

    def webhook_deliveries(self, webhook: str, after: str | None = None, limit: int = 50) -> Deliveries:
        """What was sent to a webhook, newest first."""
        page = {"after": after, "limit": limit}
        return self.http.get(Deliveries, paths.of_id("webhooks", webhook, "deliveries"), page)
