// The prompt that a model was sent for a turn, beside the prompt that it would be sent now.

import { exact } from "./api.js";
import { badge, button, h, json, money, num, said, when } from "./dom.js";
import { message, part } from "./messages.js";
import { announce, figures, meter, nothing, paged, panel, table, warnings } from "./parts.js";
import { factsOf, leftOut, recalled } from "./recalls.js";
import { sessionHeading } from "./view_sessions.js";

export const share = (one) => (one.cacheable_tokens === null || !one.tokens ? "\u2013" : `${Math.round((100 * one.cacheable_tokens) / one.tokens)} %`);

const fidelity = (one) => (one.exact ? badge("exactly", "good") : badge(one.missing ? `${one.missing} parts deleted since` : "changed since", "warn"));

const NOTHING = "No prompts are logged here. Prompts are logged while keep_contexts is on, which is the service's default. A prompt is deleted with the messages that it contains.";

async function list(ctx, id) {
  const read = (after) => ctx.api.get(["sessions", id, "contexts"], { limit: 20, after });
  const columns = [
    ["Turn", (one) => h("a", { href: ctx.to("sent", id, one.turn) }, `#${one.turn}`)],
    ["Asked", (one) => h("span", { class: "clip", dir: "auto" }, one.question || "\u2013")],
    ["At (UTC)", (one) => when(one.at), "wide"],
    ["Tokens", (one) => num(one.tokens), "number"],
    ["Same prefix", share, "number"],
    ["Recalled", (one) => num(one.recalls.length), "number"],
    ["Left out", (one) => num(one.left_out.length), "number"],
    ["Cost", (one) => money(one.cost), "number wide"],
    ["Shown as sent", fidelity],
  ];
  const show = (page) => table("Turns, oldest first; each tool round has its own line", columns, page.contexts, NOTHING);
  return [await sessionHeading(ctx, id, "sent"), paged(await read(), read, show)];
}

function raw(messages, title) {
  const text = json(messages);
  const copy = button("Copy", async () => {
    await navigator.clipboard.writeText(text);
    announce("Copied.");
  });
  return h("details", { class: "raw-json" }, h("summary", null, title), navigator.clipboard && copy, said(text, "raw"));
}

function prompt(messages) {
  const names = { summary: "summary of what left the window", recalled: "recalled", instructions: "system message" };
  return h("div", { class: "log prompt" }, messages.map((one, at) => {
    const kind = part(one, at);
    return message(one, { kind: `part ${kind}`, marks: kind ? [[names[kind], kind]] : [] });
  }));
}

function head(ctx, id, one) {
  const of = new Set(one.shortened);
  return figures([
    ["Tokens", [`${num(one.tokens)} of ${num(one.max_tokens)}`, meter(one.tokens, one.max_tokens, "Share of the budget")]],
    ["Same prefix", share(one), one.cacheable_tokens === null ? "the process's first prompt" : `${num(one.cacheable_tokens)} tokens as in the previous prompt`],
    ["Recalling cost", money(one.cost)],
    ["Sent", when(one.at), "UTC"],
    ["Shown as sent", fidelity(one)],
    ["Window", one.window.length ? h("span", { class: "seqs" }, one.window.map((seq) =>
      h("a", { href: ctx.to("session", id, "at", seq) }, `#${seq}${of.has(seq) ? " in part" : ""}`))) : "empty: the session did not exist"],
  ]);
}

function then(ctx, id, one, sent, facts, marks) {
  return h("section", { class: "side", "aria-label": "Then" }, h("h2", { class: "side-title" }, "Then"), head(ctx, id, one), warnings(one.warnings),
    panel("Recalled", one.recalls.length, recalled(ctx, one.recalls, facts, marks)),
    panel("Messages", one.messages.length, prompt(one.messages), raw(sent, "As JSON")),
    panel("Left out", one.left_out.length, leftOut(ctx, one.left_out, facts)));
}

function now(ctx, one, facts, marks) {
  const given = one.given_up.map((letter) => `${letter.block} gave up ${letter.session_id} #${letter.first} to #${letter.last}: ${letter.error}`);
  return h("section", { class: "side", "aria-label": "Now" }, h("h2", { class: "side-title" }, "Now, for the same question"),
    figures([["Tokens", [`${num(one.tokens)} of ${num(one.max_tokens)}`, meter(one.tokens, one.max_tokens, "Share of the budget")]]]),
    warnings([...one.warnings, ...given]),
    panel("Recalled", one.recalls.length, recalled(ctx, one.recalls, facts, marks)),
    panel("Messages", one.messages.length, prompt(one.messages), raw(one.messages, "As JSON")),
    panel("Left out", one.left_out.length, leftOut(ctx, one.left_out, facts)));
}

// Marks the recalls of one side that the other side lacks, with the reason if it is known.
function marked(mine, other, text, why) {
  const has = new Set(other.recalls.map((one) => one.id));
  const out = new Map(other.left_out.map((one) => [one.recall.id, one.why]));
  return new Map(mine.recalls.filter((one) => !has.has(one.id)).map((one) => [one.id, [out.has(one.id) ? `${why}: ${out.get(one.id)}` : text, "warn"]]));
}

async function turn(ctx, id, seq) {
  const text = await ctx.api.text("GET", ["sessions", id, "contexts"], { query: { after: seq - 1, limit: 1 } });
  const rounds = JSON.parse(text).contexts.filter((one) => one.turn === seq);
  const heading = await sessionHeading(ctx, id, "sent");
  if (!rounds.length) return [heading, nothing(`Turn #${seq}: ${NOTHING}`)];
  const one = rounds[Number(ctx.parts[2] ?? rounds.length) - 1] ?? rounds.at(-1);
  const sent = exact(text).contexts[rounds.indexOf(one)].messages;
  const facts = await factsOf(ctx);
  const asked = one.question ? await ctx.api.post(["explain"], { question: one.question, session_id: id }) : null;
  const which = rounds.length > 1 && h("nav", { class: "tabs", "aria-label": "Tool rounds" }, rounds.map((each, at) =>
    h("a", { href: ctx.to("sent", id, seq, at + 1), "aria-current": each === one ? "page" : null }, `round ${at + 1}`)));
  return [heading,
    h("div", { class: "asked" }, h("span", { class: "label" }, "Turn ", h("a", { href: ctx.to("session", id, "at", seq) }, `#${seq}`), " asked"),
      one.question ? said(one.question) : nothing("The turn has no question.")), which,
    h("div", { class: "beside" },
      then(ctx, id, one, sent, facts, asked ? marked(one, asked, "not recalled now", "not now") : new Map()),
      asked ? now(ctx, asked, facts, marked(asked, one, "was not recalled then", "not then")) : nothing("Without a question there is nothing to compare."))];
}

export function sent(ctx) {
  const [id, seq] = ctx.parts;
  return seq === undefined ? list(ctx, id) : turn(ctx, id, Number(seq));
}

