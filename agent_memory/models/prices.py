"""What models cost: by what the user says, else by litellm's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from agent_memory.models.loading import load_litellm


class Price(BaseModel):
    """What a model costs, in US dollars for a million tokens.

    Attributes:
        input: Of what is sent.
        output: Of what is answered.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class Prices:
    """The prices of models.

    Args:
        given: What the user says, by the name of the model; it wins over litellm's table.
    """

    def __init__(self, given: Mapping[str, Price] = MappingProxyType({})) -> None:
        self._given = given

    def of_tokens(self, model: str, prompt: int, answer: int) -> float | None:
        """What so many tokens cost; None where the model's price is not known."""
        if (price := self._given.get(model)) is not None:
            return (prompt * price.input + answer * price.output) / 1e6
        given = {"model": model, "prompt_tokens": prompt, "completion_tokens": answer}
        return _told(model, lambda: sum(load_litellm().cost_per_token(**given)))

    def of_response(self, model: str, response: Any, prompt: int, answer: int) -> float | None:
        """What a response cost, rebates on cached tokens included where litellm knows of them."""
        if model in self._given:
            return self.of_tokens(model, prompt, answer)
        return _told(model, lambda: load_litellm().completion_cost(response, model=model))


def _told(model: str, ask: Callable[[], float]) -> float | None:
    """What litellm says of a price; None where it knows none."""
    litellm = load_litellm()
    try:
        cost = float(ask())
    except litellm.BadRequestError:  # it knows no such provider
        return None
    except Exception as error:  # older litellm raises no class of its own here
        if "isn't mapped" not in str(error):
            raise
        return None
    # of some providers it says that whatever it does not know costs nothing
    is_known = {model, model.partition("/")[2]} & litellm.model_cost.keys()
    return cost if cost or is_known else None
