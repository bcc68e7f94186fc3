"""What docs/file-systems.md says of FILE_SYSTEM, compared with the model."""

from __future__ import annotations

from typing import Any

from scepter_core.config.section import keys_of
from scepter_core.sections import RemoteFsConfig

PAGE = "docs/file-systems.md"


def test_the_table_has_the_models_keys_and_defaults(docs: Any) -> None:
    rows = docs.tables(PAGE, "FILE_SYSTEM")[0]
    fields = RemoteFsConfig.model_fields
    defaults = ["required" if fields[name].is_required() else f"`{fields[name].default}`" for name in keys_of(RemoteFsConfig).values()]
    assert [(row[0], row[1]) for row in rows] == [(f"`{key}`", default) for key, default in zip(keys_of(RemoteFsConfig), defaults, strict=True)]
