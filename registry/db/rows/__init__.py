"""The tables, one class a table. Importing this package knows them all."""

from registry.db.rows.content import (
    BaseLocationRow,
    BlobRow,
    EdgeRow,
    EvidenceRow,
    FileRow,
    ManifestRow,
    TensorLocationRow,
)
from registry.db.rows.core import AppendOnlyRow, AuditEventRow, Row
from registry.db.rows.naming import AliasEventRow, GenerationArtifactRow, GenerationRow, NameRow, NameVersionRow
from registry.db.rows.policies import ChannelPolicyRow
from registry.db.rows.said import (
    LabelRow,
    MeasurementRow,
    PurgeEventRow,
    RunRecordRow,
    StatementRow,
    TokenEventRow,
)
from registry.db.rows.webhooks import WebhookDeliveryRow, WebhookEventRow, WebhookSecretRow
from registry.db.rows.working import BlobPresenceRow, IdempotencyKeyRow, JobRow, LeaseRow, UploadSessionRow

__all__ = [
    "AliasEventRow",
    "AppendOnlyRow",
    "AuditEventRow",
    "BaseLocationRow",
    "BlobPresenceRow",
    "BlobRow",
    "ChannelPolicyRow",
    "EdgeRow",
    "EvidenceRow",
    "FileRow",
    "GenerationArtifactRow",
    "GenerationRow",
    "IdempotencyKeyRow",
    "JobRow",
    "LabelRow",
    "LeaseRow",
    "ManifestRow",
    "MeasurementRow",
    "NameRow",
    "NameVersionRow",
    "PurgeEventRow",
    "Row",
    "RunRecordRow",
    "StatementRow",
    "TensorLocationRow",
    "TokenEventRow",
    "UploadSessionRow",
    "WebhookDeliveryRow",
    "WebhookEventRow",
    "WebhookSecretRow",
]
