"""Random logs in the shapes of the providers, with what real life brings.

Results come late, twice, before their call or never; users speak while a tool runs; contents are
empty; the assistant greets first; ids repeat; lists mix shapes; some messages are objects of SDKs.
"""

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Json = dict[str, Any]

SHAPES = ("openai.chat", "openai.responses", "anthropic.messages", "google.contents",
          "bedrock.converse", "langchain")  # fmt: skip
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_WORDS = ("the", "shop", "opens", "at", "nine", "plums", "pears", "order", "Lisbon", "now", "42")
_TOOLS = ("search", "get_policy", "run-shell", "f", "default_api.lookup")
_EMPTY: tuple[Any, ...] = ("", None, [], " \n", "nothing")


class Logs:
    """Make random logs; the same seed gives the same ones."""

    def __init__(
        self,
        seed: int,
        shapes: Sequence[str] = SHAPES,
        objects: Callable[[str, Json], Any] = lambda shape, message: None,
        few_ids: bool = False,
    ) -> None:
        self._random = Random(seed)
        self._shapes, self._objects, self._few_ids = shapes, objects, few_ids
        self._count = 0

    def log(self, steps: int = 12) -> list[Any]:
        """What `update` is given, one after another: messages, and lists of them."""
        random = self._random
        own = random.choice(self._shapes)
        mixes = random.random() < 0.3
        few_ids = self._few_ids or random.random() < 0.2
        found: list[Any] = []
        waiting: list[tuple[str, str, str, float]] = []
        if random.random() < 0.3:
            found.append({"role": "system", "content": "Be brief."})
        if random.random() < 0.3:
            found += self._said(own, "assistant", self._text())
        for _ in range(random.randint(1, steps)):
            shape = random.choice(self._shapes) if mixes else own
            fate = random.random()
            if fate < 0.3:
                found += self._said(shape, "user", self._content())
            elif fate < 0.45:
                found += self._said(shape, "assistant", self._content())
            elif fate < 0.75:
                calls = []
                for _ in range(random.choice((1, 1, 2, 3))):
                    self._count += 1
                    called = f"c{self._count}"
                    if few_ids:
                        called = random.choice(("a", "b", "call:1", "x" * 70, "a b"))
                    if shape == "google.contents" and random.random() < 0.7:
                        called = ""
                    calls.append((called, random.choice(_TOOLS)))
                early = random.random() < 0.03
                made = self._called(shape, calls)
                if not early:
                    found += made
                late = random.random() < 0.3
                for called, name in calls:
                    if (luck := random.random()) > 0.12:
                        waiting.append((shape, called, name, luck if late else 0.0))
                if not late:
                    found += self._results(waiting, 0.0)
                if early:
                    found += made
            elif fate < 0.85:
                found += self._results(waiting, random.random())
            elif fate < 0.93:
                empty = random.choice(_EMPTY)
                found += self._said(shape, random.choice(("user", "assistant")), empty)
            elif fate < 0.96:
                found += self._answered(shape, [("orphan", "f", "stray")])
            elif fate < 0.98:
                found.append(random.choice(("hello", {"role": "human", "content": "hi"},
                                            {"role": "USER", "content": "HI"},
                                            {"role": "ai", "content": "yes"},
                                            {"role": "model", "content": "well"})))  # fmt: skip
            else:
                found.append({"role": random.choice(("system", "developer")), "content": "Rules."})
        if random.random() < 0.5:
            found += self._results(waiting, 1.0)
        return self._grouped(found)

    def orderly(self, shape: str, turns: int = 5, result: str = "4 found") -> list[Json]:
        """Make a log of `turns` questions in one shape, which its provider accepts."""
        random, found = self._random, list[Json]()
        for _ in range(turns):
            found += self._said(shape, "user", self._some(shape, "user"))
            for _ in range(random.choice((0, 0, 1, 2))):
                calls = []
                for _ in range(random.choice((1, 2))):
                    self._count += 1
                    calls.append((f"c{self._count}", random.choice(_TOOLS[:4])))
                found += self._called(shape, calls)
                results = [(called, name, result) for called, name in calls]
                made = getattr(self, "_answered_" + shape.replace(".", "_"))(results, "")
                found += made
            found += self._said(shape, "assistant", self._some(shape, "assistant"))
        return found

    def _some(self, shape: str, role: str) -> Any:
        content = self._content()
        if isinstance(content, list):
            content = [one for one in content if one["kind"] != "blank"] or self._text()
        return content

    def _grouped(self, messages: list[Any]) -> list[Any]:
        """Messages by themselves, or in lists."""
        found: list[Any] = []
        while messages:
            count = self._random.choice((1, 1, 1, 2, 4))
            part, messages = messages[:count], messages[count:]
            found.append(part if count > 1 else part[0])
        return found

    def _results(self, waiting: list[tuple[str, str, str, float]], upto: float) -> list[Any]:
        ready = [one for one in waiting if one[3] <= upto]
        waiting[:] = [one for one in waiting if one[3] > upto]
        self._random.shuffle(ready)
        found: list[Any] = []
        while ready:
            count = self._random.choice((1, len(ready)))
            part, ready = ready[:count], ready[count:]
            shape = part[0][0]
            results = [(one[1], one[2], self._random.choice(("ok", "", "4 found"))) for one in part]
            found += self._answered(shape, results)
            if self._random.random() < 0.05:
                found += self._answered(shape, results)
            if self._random.random() < 0.1:
                found += self._said(shape, "user", "wait, also this")
        return found

    def _text(self) -> str:
        return " ".join(self._random.choices(_WORDS, k=self._random.randint(1, 12)))

    def _content(self) -> Any:
        if self._random.random() < 0.75:
            return self._text()
        kinds = self._random.choices(("text", "image", "file", "blank"), k=2)
        return [{"kind": kind, "text": self._text()} for kind in kinds]

    def _extra(self) -> Json:
        return self._random.choice(({"x_unknown": {"n": 1}}, {"x_unknown": None}, *[{}] * 18))

    def _may_be_object(self, shape: str, message: Json) -> Any:
        made = self._objects(shape, message) if self._random.random() < 0.3 else None
        return message if made is None else made

    def _said(self, shape: str, role: str, content: Any) -> list[Any]:
        message = getattr(self, "_said_" + shape.replace(".", "_"))(role, content)
        return [self._may_be_object(shape, message)]

    def _called(self, shape: str, calls: list[tuple[str, str]]) -> list[Any]:
        text = self._text() if self._random.random() < 0.4 else ""
        made = getattr(self, "_called_" + shape.replace(".", "_"))(calls, text)
        return [self._may_be_object(shape, one) for one in made]

    def _answered(self, shape: str, results: list[tuple[str, str, str]]) -> list[Any]:
        text = self._text() if self._random.random() < 0.15 else ""
        made = getattr(self, "_answered_" + shape.replace(".", "_"))(results, text)
        return [self._may_be_object(shape, one) for one in made]

    # each shape: what is said, calls, results

    def _said_openai_chat(self, role: str, content: Any) -> Json:
        parts = {
            "image": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            "file": {"type": "file", "file": {"filename": "a.pdf", "file_id": "file-1"}},
            "blank": {"type": "text", "text": ""},
        }
        if isinstance(content, list):
            content = [
                parts[one["kind"]]
                if one["kind"] in parts and (role == "user" or one["kind"] == "blank")
                else {"type": "text", "text": one["text"]}
                for one in content
            ]
        if content == "nothing":
            content = [{"type": "text", "text": ""}]
        none: Json = {}
        if role == "assistant" and self._random.random() < 0.2:
            none = dict.fromkeys(("refusal", "audio", "function_call", "tool_calls"))
        return {"role": role, "content": content, **none, **self._extra()}

    def _called_openai_chat(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        made = [
            {"id": called or "call_0", "type": "function",
             "function": {"name": name.replace(".", "_"), "arguments": '{"q": 1}'}}
            for called, name in calls
        ]  # fmt: skip
        empty = self._random.choice((None, "", text))
        return [
            {"role": "assistant", "content": text or empty, "tool_calls": made, **self._extra(),
             **self._random.choice(({}, {}, {}, {"refusal": None, "function_call": None}))}
        ]  # fmt: skip

    def _answered_openai_chat(self, results: list[tuple[str, str, str]], text: str) -> list[Json]:
        found: list[Json] = [
            {"role": "tool", "tool_call_id": called or "call_0", "content": told}
            for called, _, told in results
        ]
        return [*found, {"role": "user", "content": text}] if text else found

    def _said_openai_responses(self, role: str, content: Any) -> Json:
        kind = "output_text" if role == "assistant" else "input_text"
        if isinstance(content, list):
            url = f"data:image/png;base64,{PNG}"
            image = {"type": "input_image", "image_url": url, "detail": "auto"}
            content = [
                image
                if one["kind"] == "image" and role == "user"
                else {"type": kind, "text": "" if one["kind"] == "blank" else one["text"]}
                for one in content
            ]
        if content == "nothing":
            content = [{"type": kind, "text": ""}]
        self._count += 1
        more: Json = {}
        if role == "assistant":
            more = {"id": f"msg_{self._count}", "status": "completed"}
            for part in content if isinstance(content, list) else ():
                part["annotations"] = []
        return {"type": "message", "role": role, "content": content, **more, **self._extra()}

    def _called_openai_responses(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        found: list[Json] = []
        if self._random.random() < 0.5:
            self._count += 1
            found.append({"type": "reasoning", "id": f"rs_{self._count}", "summary": [],
                          "encrypted_content": "gAAA"})  # fmt: skip
        if text:
            found.append(self._said_openai_responses("assistant", text))
        for called, name in calls:
            self._count += 1
            found.append({"type": "function_call", "call_id": called or "c0", "name": name,
                          "arguments": "{}", "id": f"fc_{self._count}"})  # fmt: skip
        return found

    def _answered_openai_responses(
        self, results: list[tuple[str, str, str]], text: str
    ) -> list[Json]:
        found = [
            {"type": "function_call_output", "call_id": called or "c0", "output": told}
            for called, _, told in results
        ]
        return [*found, {"role": "user", "content": text}] if text else found

    def _said_anthropic_messages(self, role: str, content: Any) -> Json:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        if isinstance(content, list):
            content = [
                {"type": "image", "source": source}
                if one["kind"] == "image" and role == "user"
                else {"type": "text", "text": "" if one["kind"] == "blank" else one["text"]}
                for one in content
            ]
        if content == "nothing":
            content = [{"type": "text", "text": ""}]
        if role == "assistant" and isinstance(content, list) and self._random.random() < 0.3:
            content = [{"type": "thinking", "thinking": "hm", "signature": "sig"}, *content]
        return {"role": role, "content": content}

    def _called_anthropic_messages(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        blocks: list[Json] = []
        if self._random.random() < 0.4:
            blocks.append({"type": "thinking", "thinking": "hm", "signature": "sig"})
        if text:
            blocks.append({"type": "text", "text": text})
        if self._random.random() < 0.1:
            blocks.append({"type": "redacted_thinking", "data": "x"})
        blocks += [
            {"type": "tool_use", "id": called or "toolu_0", "name": name.replace(".", "_"),
             "input": {"q": 1}, **self._extra()}
            for called, name in calls
        ]  # fmt: skip
        return [{"role": "assistant", "content": blocks}]

    def _answered_anthropic_messages(
        self, results: list[tuple[str, str, str]], text: str
    ) -> list[Json]:
        blocks: list[Json] = [
            {"type": "tool_result", "tool_use_id": called or "toolu_0",
             "content": self._random.choice((told, [{"type": "text", "text": told}]))}
            for called, _, told in results
        ]  # fmt: skip
        if text:
            blocks.append({"type": "text", "text": text})
        return [{"role": "user", "content": blocks}]

    def _said_google_contents(self, role: str, content: Any) -> Json:
        kind = "model" if role == "assistant" else role
        if isinstance(content, list):
            blob = {"inlineData": {"mimeType": "image/png", "data": PNG}}
            parts = [
                blob
                if one["kind"] == "image" and role == "user"
                else {"text": "" if one["kind"] == "blank" else one["text"]}
                for one in content
            ]
        elif content == "nothing":
            parts = [{"text": ""}]
        else:
            parts = [{"text": content}] if content else []
        if role == "assistant" and self._random.random() < 0.2:
            parts = [{"text": "hm", "thought": True}, *parts]
        return {"role": kind, "parts": parts, **self._extra()}

    def _called_google_contents(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        name = self._random.choice(("functionCall", "function_call"))
        parts: list[Json] = [{"text": text}] if text else []
        for called, tool in calls:
            call = {"name": tool, "args": {"q": 1}, **({"id": called} if called else {})}
            parts.append({name: call})
        if self._random.random() < 0.3:
            signature = "thoughtSignature" if name == "functionCall" else "thought_signature"
            parts[-1][signature] = "c2ln"
        return [{"role": "model", "parts": parts}]

    def _answered_google_contents(
        self, results: list[tuple[str, str, str]], text: str
    ) -> list[Json]:
        name = self._random.choice(("functionResponse", "function_response"))
        parts: list[Json] = []
        for called, tool, told in results:
            given = {"name": tool, "response": {"result": told}}
            parts.append({name: {**given, **({"id": called} if called else {})}})
        found: list[Json] = [{"role": self._random.choice(("user", "user", "function")),
                              "parts": parts}]  # fmt: skip
        return [*found, {"role": "user", "parts": [{"text": text}]}] if text else found

    def _said_bedrock_converse(self, role: str, content: Any) -> Json:
        if isinstance(content, list):
            image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}}
            content = [
                image
                if one["kind"] == "image" and role == "user"
                else {"text": "" if one["kind"] == "blank" else one["text"]}
                for one in content
            ]
        elif content == "nothing":
            content = [{"text": ""}]
        else:
            content = [{"text": content}] if content else []
        return {"role": role, "content": content, **self._extra()}

    def _called_bedrock_converse(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        blocks: list[Json] = [{"text": text}] if text else []
        if self._random.random() < 0.3:
            said = {"text": "hm", "signature": "sig"}
            blocks.insert(0, {"reasoningContent": {"reasoningText": said}})
        blocks += [
            {"toolUse": {"toolUseId": called or "t0", "name": name.replace(".", "_"),
                         "input": {"q": 1}}}
            for called, name in calls
        ]  # fmt: skip
        return [{"role": "assistant", "content": blocks}]

    def _answered_bedrock_converse(
        self, results: list[tuple[str, str, str]], text: str
    ) -> list[Json]:
        blocks: list[Json] = [
            {"toolResult": {"toolUseId": called or "t0",
                            "content": [self._random.choice(({"text": told or "-"},
                                                             {"json": {"r": told}}))]}}
            for called, _, told in results
        ]  # fmt: skip
        if text:
            blocks.append({"text": text})
        return [{"role": "user", "content": blocks}]

    def _said_langchain(self, role: str, content: Any) -> Json:
        if isinstance(content, list):
            link = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
            content = [
                link
                if one["kind"] == "image" and role == "user"
                else {"type": "text", "text": "" if one["kind"] == "blank" else one["text"]}
                for one in content
            ]
        if content == "nothing" or content is None:
            content = ""
        kind = {"user": "human", "assistant": "ai"}[role]
        return {"type": kind, "content": content, "additional_kwargs": {}, "response_metadata": {}}

    def _called_langchain(self, calls: list[tuple[str, str]], text: str) -> list[Json]:
        made = [
            {"name": name, "args": {"q": 1}, "id": called or "l0", "type": "tool_call"}
            for called, name in calls
        ]
        return [{"type": "ai", "content": text, "additional_kwargs": {}, "response_metadata": {},
                 "tool_calls": made}]  # fmt: skip

    def _answered_langchain(self, results: list[tuple[str, str, str]], text: str) -> list[Json]:
        found: list[Json] = [
            {"type": "tool", "content": told, "tool_call_id": called or "l0", "status": "success"}
            for called, _, told in results
        ]
        return [*found, {"type": "human", "content": text}] if text else found


def as_text(message: Any) -> str:
    return json.dumps(message, default=repr, ensure_ascii=False)
