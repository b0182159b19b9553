// Shows messages of a log or a prompt.

import { badge, h, json, mono, num, said, when, words } from "./dom.js";

const TOLD = new Set(["role", "content", "name", "tool_calls", "tool_call_id", "type"]);

function content(message) {
  const given = message.content;
  if (typeof given === "string") return given ? [said(given, message.role === "tool" ? "raw" : "")] : [];
  if (!Array.isArray(given)) return given === null || given === undefined ? [] : [said(json(given), "raw")];
  return given.map((part) => (part && typeof part.text === "string" ? said(part.text) : said(json(part), "raw")));
}

function calls(message) {
  const found = Array.isArray(message.tool_calls) ? message.tool_calls : [];
  return found.map((call) => h("div", { class: "call" },
    h("span", { class: "label" }, "calls"), mono(call?.function?.name ?? call?.type ?? "a tool"),
    call?.function?.arguments !== undefined && said(call.function.arguments, "raw")));
}

// The body of a message: its content, its tool calls, and all other fields.
export function body(message) {
  const rest = Object.fromEntries(Object.entries(message).filter(([name]) => !TOLD.has(name)));
  const told = [...content(message), ...calls(message)];
  if (!told.length && !message.role) told.push(said(json(message), "raw"));
  const more = Object.keys(rest).length > 0 && message.role;
  return [told, more && h("details", null, h("summary", null, "Other fields"), said(json(rest), "raw"))];
}

export function message(given, { seq, at, tokens, kind = "", marks = [], links = [], id } = {}) {
  const role = words(given.role ?? given.type ?? "item");
  return h("article", { class: `message ${kind}`, "data-role": ["user", "assistant", "tool", "system"].includes(role) ? role : "other", id },
    h("header", null, seq && h("span", { class: "seq" }, `#${seq}`), h("span", { class: "role" }, role),
      given.name && mono(given.name), given.tool_call_id && mono(given.tool_call_id), marks.map(([text, tone]) => badge(text, tone)),
      h("span", { class: "meta" }, tokens !== undefined && `${num(tokens)} tokens`, at && when(at), links)),
    body(given));
}

// Returns which part of a prompt a message is. Summary and recalls are enclosed in elements.
export function part(given, place) {
  const text = typeof given.content === "string" ? given.content : "";
  if (place <= 1 && text.startsWith("<summary>")) return "summary";
  if (text.startsWith("<memory>")) return "recalled";
  return given.role === "system" ? "instructions" : "";
}
