"""Addresses that may hold a password or a key: whole where they are used, masked where they are
shown."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, SecretStr, SerializationInfo, SerializerFunctionWrapHandler
from pydantic import WrapSerializer as Serializer

from agent_memory.core.masked import without_password

T = TypeVar("T")


def _given(value: Any) -> Any:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _told(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
    if not isinstance(value, str):
        return handler(value)
    shown = without_password(value)
    if shown == value:
        return value
    return shown if info.mode == "json" else SecretStr(value)


Address = Annotated[T, BeforeValidator(_given), Serializer(_told)]
"""A field that may hold an address.

In Python a dump has one with a secret as a `SecretStr`, which the field takes too; in JSON it is
masked, as all secrets are.
"""
