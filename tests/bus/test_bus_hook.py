"""The base class of hooks."""

from __future__ import annotations

import pickle

import pytest
from pydantic import BaseModel

from scepter_core.bus import Hook
from scepter_core.config import FreeSection
from scepter_core.errors import ConfigError
from scepter_core.registry import Registry
from scepter_core.sections import HookConfig


class Late(Hook):
    class Config(HookConfig):
        priority: int = 300


class Ported(Hook):
    """As hooks were written for SCEPTER."""

    def __init__(self, cfg, logger=None):
        super().__init__(cfg, logger=logger)
        self.priority = cfg.get("PRIORITY", 40)
        self.interval = cfg.get("INTERVAL", 10)


def build(kind: type[Hook], **keys: object) -> Hook:
    hooks = Registry("hooks", common=HookConfig)
    hooks.register_class()(kind)
    return hooks.build({"NAME": kind.__name__, **keys}, logger="logger")


def test_the_defaults():
    hook = build(Hook)
    assert (hook.name, hook.priority, hook.role, hook.events, hook.logger) == (
        "Hook",
        0,
        None,
        None,
        "logger",
    )
    assert (hook.state_key, hook.state_dict(), hook.load_state_dict({})) == ("", {}, None)
    assert list(Hook.check(hook.cfg, None)) == []
    assert hook.before_iter(None) is None


def test_priority_is_the_given_one_else_the_default_of_the_config_zero_included():
    assert build(Late).priority == 300
    assert build(Late, PRIORITY=0).priority == 0
    assert build(Hook, PRIORITY=-5).priority == -5


def test_the_base_is_strict_about_its_keys():
    with pytest.raises(ConfigError, match="INTERVAL"):
        build(Hook, INTERVAL=1)


def test_a_hook_written_for_scepter_takes_any_keys_and_its_own_default_priority():
    assert (build(Ported).priority, build(Ported).interval) == (40, 10)
    assert (build(Ported, PRIORITY=0, INTERVAL=3).priority, build(Ported, INTERVAL=3).interval) == (0, 3)


def test_a_config_without_a_priority_is_taken_and_a_priority_must_be_a_number():
    class Bare(BaseModel):
        def get(self, key, default=None):
            return default

    class Odd(Hook):
        Config = Bare

    assert Odd(Bare()).priority == 0
    with pytest.raises(ConfigError, match="X: PRIORITY must be an integer, not 'high'"):
        Hook(FreeSection(NAME="X", PRIORITY="high"))
    with pytest.raises(ConfigError, match="PRIORITY must be an integer, not True"):
        Hook(FreeSection(NAME="X", PRIORITY=True))


def test_a_hook_can_be_pickled():
    hook = pickle.loads(pickle.dumps(Late(Late.Config(name="L", priority=3))))
    assert (type(hook), hook.priority, hook.name) == (Late, 3, "L")
