"""Where files are: a path of the local disk, or a URL of a protocol that fsspec has a driver for.

Only a URL makes fsspec, and its protocol's driver, be imported.
"""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MASK = "***"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://", re.ASCII)
_ONE_SLASH = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/(?!/)", re.ASCII)
_CHAINED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://[^:]*)?::", re.ASCII)
_USER_INFO = re.compile(
    r"(?P<head>[A-Za-z][A-Za-z0-9+.-]+://(?:\$\{[^{}]*\}|[^/@:\s'\"{])*):(?P<password>(?!\$\{)[^/@\s'\"]+)@", re.ASCII
)
_SECRET = re.compile(r"key|secret|token|passw|passphrase|credential|auth|sas|conn(ection)?_str|cookie", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{[^{},]*\}")  # without a default, which would be the secret itself
_OVERRIDE = re.compile(r"(?P<path>FILE_SYSTEM[^=]*=).*(?P<end>\")", re.DOTALL)
_LOCAL = ("file", "local")
_NEAR = 0.8  # how alike an option must be to one of the driver's to be taken for a misspelling of it


def is_url(path: str) -> bool:
    """Whether `path` is a URL, and no path of the local disk."""
    return _URL.match(os.fspath(path)) is not None


def protocol_of(url: str) -> str:
    """The part before `://`, in lower case; `file` of a local path."""
    match = _URL.match(os.fspath(url))
    return match[1].lower() if match else "file"


def is_local(path: str) -> bool:
    """Whether `path` is of the local disk: a plain path, or a URL `file://…`."""
    return protocol_of(path) in _LOCAL


def local_path(path: str) -> str:
    """A plain path for one that `is_local`."""
    return path[_URL.match(path).end() :] if is_url(path) else path  # type: ignore[union-attr]


def absolute(path: str) -> str:
    """The absolute path; a URL without a password, and without `.`, `..`, doubled and last slashes."""
    if is_local(path):
        return str(Path(local_path(path)).absolute())
    path = split_password(path)[0]
    match = _URL.match(path)
    head, rest = path[: match.end()], path[match.end() :]  # type: ignore[union-attr]
    host, slash, below = rest.partition("/")
    below = posixpath.normpath("/" + below).lstrip("/") if slash else ""
    return f"{head.lower()}{host}/{below}" if below else f"{head.lower()}{host}"


def join(*parts: str) -> str:
    """The path of `parts`, one below the other; the last absolute one, or URL, begins it."""
    first = max((n for n, part in enumerate(parts) if is_url(part) or Path(part).is_absolute()), default=0)
    base, *below = parts[first:]
    if is_local(base):
        return str(Path(local_path(base), *below))
    return "/".join([base.rstrip("/"), *(part.strip("/") for part in below if part.strip("/"))])


def parent(path: str) -> str:
    """The folder that `path` is in."""
    return str(Path(local_path(path)).parent) if is_local(path) else absolute(path).rpartition("/")[0]


def head(url: str) -> str:
    """The URL's protocol and host (or bucket)."""
    return "/".join(url.split("/", 3)[:3])


def resolve(path: str) -> str:
    """As `absolute`; of a local path, links are followed too."""
    return str(Path(local_path(path)).resolve()) if is_local(path) else absolute(path)


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or below it."""
    path, folder = resolve(path), resolve(folder)
    if is_local(path) or is_local(folder):
        return is_local(path) and is_local(folder) and Path(path).is_relative_to(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# --- secrets ------------------------------------------------------------------------------------


def is_secret(key: str) -> bool:
    """Whether what stands behind an option of this name is not to be shown."""
    return _SECRET.search(key) is not None


def hidden(options: Mapping[Any, Any]) -> dict[Any, Any]:
    """The options with a mask for each secret, also in mappings among them."""
    return {
        name: hidden(value)
        if isinstance(value, Mapping)
        else MASK
        if is_secret(str(name)) and value is not None
        else value
        for name, value in options.items()
    }


def masked(options: Mapping[str, Any]) -> str | None:
    """The name of an option that holds a mask in place of a secret; None where none does."""
    for name, value in options.items():
        if value == MASK or (isinstance(value, Mapping) and masked(value)):
            return name
    return None


def split_password(url: str) -> tuple[str, str | None]:
    """The URL without the password of `user:password@`, and that password."""
    match = _USER_INFO.match(url)
    if match is None:
        return url, None
    return f"{match['head']}@{url[match.end() :]}", match["password"]


def without_passwords(text: str) -> str:
    """The text with every `://user:password@` in it masked."""
    return _USER_INFO.sub(rf"\g<head>:{MASK}@", text)


def shown(option: str, text: str) -> str:
    """What may be shown of the value of an option: a reference, as it is, and what is no secret, without passwords."""
    bare = text.strip("'\"")
    return MASK if is_secret(option) and not _REFERENCE.fullmatch(bare) else without_passwords(text)


def shown_override(text: str) -> str:
    """What may be shown of an override, whose value may be a whole section."""
    return without_passwords(_OVERRIDE.sub(rf"\g<path>{MASK}\g<end>", text))


# --- drivers ------------------------------------------------------------------------------------


def driver_of(protocol: str) -> Any:
    """fsspec's class for a protocol.

    Raises:
        ValueError: there is none, or a package is missing; says which.
    """
    import fsspec

    try:
        return fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise ValueError(_how_to_install(protocol, error)) from error
    except ValueError:
        near = difflib.get_close_matches(protocol, fsspec.available_protocols(), n=3, cutoff=0.5)
        known = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(fsspec.available_protocols()))}"
        raise ValueError(f"fsspec knows no protocol {protocol}; {known}") from None


def _how_to_install(protocol: str, error: ImportError) -> str:
    from fsspec.registry import known_implementations

    entry = known_implementations.get(protocol, {})
    words = str(entry.get("err", ""))
    packages = re.findall(r"[\"']([\w-]+)[\"']", words) or re.findall(r"[Ii]nstall (?:the )?([\w-]+)", words)
    own = entry.get("class", "").partition(".")[0]
    if not packages and own not in ("", "fsspec"):
        packages = [own]
    how = f": pip install {' '.join(dict.fromkeys(packages))}" if packages else f" ({words or error})"
    cause = error.__cause__
    missing = isinstance(cause, ModuleNotFoundError) and (cause.name in packages or cause.name == own)
    why = "" if missing or cause is None or not packages else f" ({cause})"
    return f"the driver of {protocol}:// is not installed{how}{why}"


def unknown_option(driver: Any, options: Mapping[str, Any]) -> str | None:
    """What is wrong with the names of a driver's options; None where nothing is.

    Many drivers hand on what they do not know themselves: then only what is nearly one of theirs is taken for a mistake.
    """
    import inspect

    known: set[str] = set()
    is_open = True
    for place, cls in enumerate(driver.__mro__[:-1]):
        parameters = inspect.signature(cls.__init__).parameters.values() if "__init__" in vars(cls) else ()
        known |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} - {"self"}
        if place == 0 and parameters:
            is_open = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known |= {"use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache"} & set(options)
    for name in options:
        near = difflib.get_close_matches(name, known, n=1, cutoff=_NEAR)
        if name not in known and (near or not is_open):
            hint = f"did you mean {near[0].upper()}?" if near else f"it has {', '.join(sorted(known)).upper()}"
            return f"{driver.__name__} has no option {name.upper()}; {hint}"
    return None


def check(path: str) -> str:
    """The path or URL as it is.

    Raises:
        ValueError: what can be known of it without connecting says that it cannot be reached: its protocol, its driver.
    """
    if _CHAINED.match(path):
        raise ValueError("chained URLs (::) are no place to write to; give the URL of the store itself")
    slip = _ONE_SLASH.match(path)
    if slip is not None:
        import fsspec

        if slip[1].lower() in fsspec.available_protocols():
            raise ValueError(f"a URL has two slashes: {slip[1]}://")
    if not is_url(path):
        return path
    if split_password(path)[1] == MASK:
        raise ValueError("the password was masked when this was written; write it as ${env:NAME}")
    if not is_local(path):
        driver_of(protocol_of(path))
    return path
