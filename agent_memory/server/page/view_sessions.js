// The list of sessions, and the log of one session with a line where its window begins.

import { ask, receipt } from "./dialog.js";
import { button, fill, h, mono, num, said, when } from "./dom.js";
import { message } from "./messages.js";
import { announce, figures, heading, meter, paged, table } from "./parts.js";

const PAGE = 100;

export const titleOf = (one) => (typeof one.metadata?.title === "string" && one.metadata.title ? one.metadata.title : one.id);

export async function sessions(ctx) {
  const place = h("div", null);
  const read = (prefix) => (after) => ctx.api.get(["sessions"], { limit: 50, newest: true, prefix, after });
  const columns = [
    ["Session", (one) => h("a", { href: ctx.to("session", one.id), dir: "auto" }, titleOf(one))],
    ["Id", (one) => mono(one.id), "wide"],
    ["Messages", (one) => num(one.messages), "number"],
    ["Tokens", (one) => num(one.tokens), "number"],
    ["Last message", (one) => when(one.updated_at)],
    ["Began", (one) => when(one.created_at), "wide"],
    ["", (one) => h("a", { href: ctx.to("sent", one.id), "aria-label": `What was sent in ${one.id}` }, "what was sent")],
  ];
  const list = async (prefix) => {
    const turn = read(prefix);
    const show = (page) => table("Sessions, newest message first", columns, page.sessions, "No session id has this prefix.");
    fill(place, paged(await turn(), turn, show));
  };
  await list();
  const prefix = h("input", { type: "search", "aria-label": "Id begins with", placeholder: "Id begins with" });
  const find = h("form", { role: "search", onsubmit: (event) => { event.preventDefault(); list(prefix.value).catch((error) => announce(error.message)); } },
    prefix, h("button", { type: "submit" }, "Filter"));
  return [heading("Sessions", null, find), place];
}

function tabs(ctx, id, now) {
  const one = (view, name) => h("a", { href: ctx.to(view, id), "aria-current": now === view ? "page" : null }, name);
  return h("nav", { class: "tabs", "aria-label": "This session" }, one("session", "Log and window"), one("sent", "What was sent"));
}

export async function sessionHeading(ctx, id, now, ...actions) {
  const one = await ctx.api.get(["sessions", id]);
  const rest = Object.fromEntries(Object.entries(one.metadata).filter(([name]) => name !== "title"));
  return [heading(titleOf(one), [mono(id), ` \u00b7 ${num(one.messages)} messages, ${num(one.tokens)} tokens, last `, when(one.updated_at), " UTC"], ...actions),
    Object.keys(rest).length > 0 && said(JSON.stringify(rest), "raw"), tabs(ctx, id, now)];
}

function state(window) {
  const waiting = Object.entries(window.lag);
  return figures([
    ["In the window", [`${num(window.tokens)} of ${num(window.max_tokens)} tokens`, meter(window.tokens, window.max_tokens, "Share of the budget")]],
    ["Messages shown", num(window.end - window.start + window.pinned.length), `of ${num(window.end)}`],
    window.expired > 0 && ["Expired", num(window.expired), "removed from the log"],
    ...waiting.map(([block, lag]) => [`Absorbed by ${block}`, lag ? `${num(lag)} pending` : "all messages"]),
  ]);
}

function cut(window) {
  if (!window.start) return null;
  const stands = window.summary && [h("p", { class: "label" }, `Summary of these messages (${num(window.summary.tokens)} tokens, by ${window.summary.by})`), said(window.summary.text)];
  return h("section", { class: "cut", "aria-label": "The cut" },
    h("p", null, `\u2702 Messages up to #${window.start} have left the window. Models are sent the messages below in full.`), stands);
}

function entries(ctx, id, window, page, here) {
  return page.flatMap((one) => {
    const inside = one.seq > window.start || one.message.role === "system";
    const pinned = window.pinned.includes(one.seq);
    const marks = pinned ? [["stays in the window", "good"]] : [];
    const links = one.message.role === "user" ? h("a", { href: ctx.to("sent", id, one.seq) }, "what was sent") : null;
    const kind = `${inside || pinned ? "inside" : "outside"}${one.seq === here ? " here" : ""}`;
    const made = message(one.message, { seq: one.seq, at: one.created_at, tokens: one.tokens, kind, marks, links, id: one.seq === here ? "here" : undefined });
    return one.seq === window.start ? [made, cut(window)] : [made];
  });
}

// The buttons that delete a session or forget its facts. Each shows its effects first.
function actions(ctx, id, window, done) {
  if (!ctx.can("delete")) return [];
  const counted = async () => {
    const found = await ctx.api.all(["facts"], "facts", { session_id: id, superseded: true }).catch(() => []);
    const alone = found.filter((fact) => fact.evidence.every((one) => one.session_id === id));
    return [found, alone];
  };
  const forget = async () => {
    const [, alone] = await counted();
    const answer = await ask("Forget all facts from this session?", [
      h("p", null, `${num(alone.length)} facts are forgotten permanently. Facts that they superseded are valid again. The messages stay.`),
      h("ul", null, alone.slice(0, 20).map((fact) => h("li", { dir: "auto" }, fact.text)))],
    { confirm: "Forget them", act: () => ctx.api.post(["forget"], { session_id: id }) });
    if (answer) announce(`${answer.forgotten.length} facts are forgotten.`);
  };
  const remove = async () => {
    const [, alone] = await counted();
    const answer = await ask("Delete this session?", h("p", null,
      `${num(window.end - window.expired)} messages of `, mono(id), `, ${num(alone.length)} facts from these messages alone, the prompt log of the session, and all other data derived from it are erased permanently.`),
    { confirm: "Delete it", act: () => ctx.api.ask("DELETE", ["sessions", id]) });
    if (answer) done(receipt(answer, "The session is deleted"));
  };
  return [Object.values(ctx.me.blocks).includes("extractive") && button("Forget its facts", forget, { class: "act" }), button("Delete", remove, { class: "act danger" })];
}

export async function session(ctx) {
  const [id, , at] = ctx.parts;
  const here = Number(at) || 0;
  const window = await ctx.api.get(["sessions", id, "window"]);
  const whole = h("div", null);
  const log = h("div", { class: "log", role: "group", "aria-label": "Log" });
  let first = Math.max(window.expired, (here || window.start) - 20, Math.min(here ? here - 20 : 0, window.end - PAGE));
  const read = (after, limit) => ctx.api.get(["sessions", id, "messages"], { after, limit });
  const show = (page) => entries(ctx, id, window, page.messages, here);
  const newer = paged(await read(first, PAGE), (after) => read(after, PAGE), (page) => h("div", { class: "log" }, show(page)));
  const earlier = button("Earlier", async () => {
    const from = Math.max(window.expired, first - PAGE);
    log.prepend(...show(await read(from, first - from)));
    first = from;
    if (first <= window.expired) earlier.remove();
  }, { class: "more" });
  fill(whole, await sessionHeading(ctx, id, "session", ...actions(ctx, id, window, (told) => fill(whole, told))), state(window),
    window.system && first > 0 && h("details", null, h("summary", null, "System message"), message(window.system)),
    first > window.expired && earlier, log, newer);
  return whole;
}
