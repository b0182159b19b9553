"""Addresses that may hold a password, as settings: complete for use, masked for display."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SecretStr, SerializationInfo, SerializerFunctionWrapHandler
from pydantic import WrapSerializer as Serializer

from agent_memory.core.masked import without_password

T = TypeVar("T")


def _plain_value(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _serialized(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    if not isinstance(value, str):
        return handler(value)
    shown = without_password(value)
    if shown == value:
        return value
    return shown if info.mode == "json" else SecretStr(value)


Address = Annotated[T, BeforeValidator(_plain_value), Serializer(_serialized)]
"""A field that may hold an address.

A Python dump returns an address with a password as a `SecretStr`, which the field accepts. JSON
masks the password.
"""
