// Shows recalls with the signals of their score, quotes as evidence, and links to their messages.

import { ask } from "./dialog.js";
import { badge, button, h, num, said } from "./dom.js";
import { announce, field, meter, nothing } from "./parts.js";

const FEW = 4;

export const place = (ctx, source) =>
  h("a", { href: ctx.to("session", source.session_id, "at", source.seq), class: "source", dir: "auto" },
    `${source.session_id} #${source.seq}`);

export const sources = (ctx, found) => found.map((one) => place(ctx, one));

export function quote(ctx, one) {
  return h("blockquote", null, h("q", { dir: "auto" }, one.quote),
    h("footer", null, one.role, ", ", place(ctx, one)));
}

async function forget(ctx, fact, found) {
  const again = found.filter((one) => one.superseded_by === fact.id);
  const why = h("input", { maxlength: 1000, autocomplete: "off" });
  const answer = await ask("Permanently forget this fact?", [
    h("p", { dir: "auto" }, h("strong", null, fact.text)),
    h("p", null, "The messages stay in the log. If they are absorbed again, the fact stays forgotten."),
    again.length > 0 && [h("p", null, "Facts that it superseded may become valid again:"), h("ul", null, again.map((one) => h("li", { dir: "auto" }, one.text)))]],
  { confirm: "Forget it", input: field("The reason, for the audit", why),
    act: () => ctx.api.ask("DELETE", ["facts", fact.id], { query: { why: why.value } }) });
  if (answer) {
    await ctx.again();
    announce(`${answer.forgotten.length} forgotten.`);
  }
}

// The button that forgets a fact, if the key has the right.
export function forgetting(ctx, fact, found) {
  return ctx.can("delete") && button("Forget", () => forget(ctx, fact, found), { class: "act small" });
}

function signals(recall) {
  const all = Object.entries(recall.signals);
  if (!all.length) return null;
  const most = Math.max(...all.map(([, value]) => Math.abs(value)), 1e-9);
  return h("dl", { class: "signals" }, all.map(([name, value]) => h("div", null, h("dt", null, name),
    h("dd", null, h("span", null, value.toFixed(2)), meter(Math.abs(value), most, `${name} ${value}`)))));
}

function card(ctx, recall, facts, mark, why) {
  const fact = facts.get(recall.id);
  const text = recall.text || "The record was changed or deleted since.";
  return h("li", { class: "recall" },
    h("header", null, badge(recall.block), recall.time && h("span", { class: "time" }, recall.time),
      mark && badge(mark[0], mark[1]),
      h("span", { class: "meta" }, recall.tokens ? `${num(recall.tokens)} tokens` : null,
        h("span", { class: "score" }, `score ${recall.score.toFixed(2)}`),
        fact && forgetting(ctx, fact, [...facts.values()]))),
    said(text, recall.text ? "" : "gone"),
    why && h("p", { class: "why" }, "Left out: ", why),
    fact && fact.evidence.map((one) => quote(ctx, one)),
    h("footer", null, signals(recall), !fact && recall.sources.length > 0 && h("p", { class: "from" }, "from ", sources(ctx, recall.sources))));
}

// `facts` has the facts by id, for their quotes. `marks` has a badge's text and class by recall id.
export function recalled(ctx, found, facts, marks = new Map()) {
  if (!found.length) return nothing("Nothing was recalled.");
  return h("ol", { class: "recalls" }, found.map((one) => card(ctx, one, facts, marks.get(one.id))));
}

export function leftOut(ctx, found, facts) {
  if (!found.length) return nothing("Nothing relevant was left out.");
  const cards = found.map((one) => card(ctx, one.recall, facts, null, one.why));
  const first = h("ol", { class: "recalls" }, cards.slice(0, FEW));
  if (cards.length <= FEW) return first;
  return [first, h("details", null, h("summary", null, `${cards.length - FEW} more`), h("ol", { class: "recalls" }, cards.slice(FEW)))];
}

// The user's facts by id, including superseded ones. Empty if no block stores facts.
export async function factsOf(ctx) {
  try {
    const found = await ctx.api.all(["facts"], "facts", { superseded: true });
    return new Map(found.map((one) => [one.id, one]));
  } catch (error) {
    if (error.kind === "not-configured") return new Map();
    throw error;
  }
}
