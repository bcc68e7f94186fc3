"""`dict_to_yaml`, which SCEPTER's classes call in `get_config_template` to show their keys."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml


def dict_to_yaml(
    module_name: str, name: str, json_config: Any, set_name: bool = False, exclude_keys: Collection[str] = ()
) -> str:
    """The keys that a `para_dict` describes as commented YAML, each with its default.

    Args:
        module_name: the key that the whole stands under, in upper case.
        name: the class.
        json_config: `{KEY: {"value": default, "description": text}}`, nested at will; a list of such for a section that
            stands in a list, as hooks do.
        set_name: begin with `NAME: name`.
        exclude_keys: keys that are left out, at any depth.
    """
    in_list = isinstance(json_config, list)
    described: Mapping[str, Any] = {}
    for part in json_config if in_list else [json_config]:
        described = {**described, **part}
    lines = [*([f"NAME: {name}"] if set_name else ()), *_keys(described, frozenset(exclude_keys))]
    if in_list:
        lines = _as_item(lines)
    return "\n".join([f"{module_name.upper()}:", *(f"  {line}" for line in lines)]) + "\n"


def _keys(described: Mapping[str, Any], excluded: frozenset[str]) -> Iterator[str]:
    for key, entry in described.items():
        if key == "description" or key in excluded:
            continue
        text = entry.get("description", "") if isinstance(entry, Mapping) else ""
        if text:
            yield f"# {' '.join(str(text).split())}"
        if isinstance(entry, Mapping) and "value" in entry:
            yield f"{key}: {_flow(entry['value'])}".rstrip()
        elif isinstance(entry, Mapping):
            yield f"{key}:"
            yield from (f"  {line}" for line in _keys(entry, excluded))
        else:
            yield f"{key}:"
            for part in entry:
                yield from (f"  {line}" for line in _as_item(list(_keys(part, excluded))))


def _as_item(lines: list[str]) -> list[str]:
    return [f"{'- ' if place == 0 else '  '}{line}" for place, line in enumerate(lines)]


def _flow(value: Any) -> str:
    """A value on one line; nothing for None and {}, which say that there is no default."""
    if value is None or value == {}:
        return ""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return text.removesuffix("...\n").strip()
