"""A route of FastAPI that takes what an append takes, and does nothing: `uvicorn` serves `app`."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel


class Append(BaseModel):
    """Messages to append."""

    messages: list[dict[str, Any]]


app = FastAPI()


@app.post("/v1/sessions/{session_id}/messages")
async def append(session_id: str, user_id: str, body: Append) -> dict[str, int]:
    """Nothing."""
    return {"end": len(body.messages)}
