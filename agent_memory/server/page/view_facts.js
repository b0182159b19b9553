// Facts on a timeline, the facts they superseded, and every change with its reason.

import { badge, fill, h, num, when } from "./dom.js";
import { announce, heading, nothing, paged, table } from "./parts.js";
import { forgetting, place, quote } from "./recalls.js";

const current = (fact, now) => fact.superseded_at === null && !(fact.kind !== "event" && fact.valid_to && Date.parse(fact.valid_to) <= now);
const begin = (fact) => Date.parse(fact.valid_from ?? fact.recorded_at);
const end = (fact, now) => Date.parse(fact.valid_to ?? fact.superseded_at ?? new Date(now).toISOString());

// Groups each fact with the facts that it superseded, the newest group first.
function chains(found) {
  const all = new Map(found.map((fact) => [fact.id, fact]));
  const root = (fact) => {
    const seen = new Set();
    while (all.has(fact.superseded_by) && !seen.has(fact.id)) {
      seen.add(fact.id);
      fact = all.get(fact.superseded_by);
    }
    return fact.id;
  };
  const groups = new Map();
  for (const fact of found) groups.set(root(fact), [...(groups.get(root(fact)) ?? []), fact]);
  const newest = (group) => Math.max(...group.map((fact) => Date.parse(fact.recorded_at)));
  return [...groups.values()].map((group) => group.sort((a, b) => begin(b) - begin(a))).sort((a, b) => newest(b) - newest(a));
}

function bar(fact, from, to, now) {
  const at = (moment) => (100 * (Math.min(Math.max(moment, from), to) - from)) / Math.max(1, to - from);
  const left = at(begin(fact));
  const width = Math.max(0.8, at(end(fact, now)) - left);
  return h("svg", { class: "span", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": fact.time },
    h("rect", { class: "all", y: 2.5, width: 100, height: 1 }),
    h("rect", { class: current(fact, now) ? "part" : "part over", x: Math.min(left, 99.2), width, height: 6, rx: 0.4 }));
}

function scale(from, to) {
  const label = (at) => new Date(at).toISOString().slice(0, 10);
  return h("div", { class: "scale", "aria-hidden": "true" }, [0, 0.5, 1].map((share) => h("span", null, label(from + share * (to - from)))));
}

function row(ctx, fact, found, [from, to, now]) {
  const heir = found.find((one) => one.id === fact.superseded_by);
  const state = current(fact, now) ? badge("valid", "good") : badge(fact.why || "not valid");
  return h("li", { class: current(fact, now) ? "fact" : "fact over", id: `fact-${fact.id}` },
    h("header", null, state, h("span", { class: "time" }, fact.time), badge(fact.category),
      fact.subject !== "user" && badge(fact.subject), fact.field && badge(`profile: ${fact.field}`),
      h("span", { class: "meta" }, `confidence ${fact.confidence.toFixed(2)}`, forgetting(ctx, fact, found))),
    h("p", { class: "text", dir: "auto" }, fact.text), bar(fact, from, to, now),
    heir && h("p", { class: "why", dir: "auto" }, `${fact.why || "superseded"}, `, when(fact.superseded_at), `, by: ${heir.text}`),
    fact.evidence.map((one) => quote(ctx, one)));
}

export async function facts(ctx) {
  const found = await ctx.api.all(["facts"], "facts", { superseded: true });
  if (!found.length) return [heading("Facts"), nothing("There are no facts about this user.")];
  const now = Date.now();
  const known = [...found.map(begin), ...found.map((fact) => end(fact, now))].filter(Number.isFinite);
  const [from, to] = [Math.min(...known), Math.max(...known, now)];
  const place = h("div", null);
  const words = h("input", { type: "search", placeholder: "Words in the facts", "aria-label": "Words in the facts" });
  const only = h("input", { type: "checkbox" });
  const show = () => {
    const wanted = words.value.toLowerCase();
    const has = (fact) => `${fact.text} ${fact.subject} ${fact.evidence.map((one) => one.quote).join(" ")}`.toLowerCase().includes(wanted);
    const shown = found.filter((fact) => has(fact) && !(only.checked && !current(fact, now)));
    fill(place, scale(from, to), h("ol", { class: "facts" }, chains(shown).map((group) =>
      h("li", null, h("ol", { class: "chain" }, group.map((fact) => row(ctx, fact, found, [from, to, now])))))));
    announce(`${shown.length} facts are shown.`);
  };
  words.addEventListener("input", show);
  only.addEventListener("change", show);
  show();
  const held = found.filter((fact) => current(fact, now)).length;
  return [heading("Facts", `${num(held)} valid, ${num(found.length - held)} no longer valid`, words, h("label", { class: "check" }, only, "only valid facts")), place];
}

export async function audit(ctx) {
  const read = (after) => ctx.api.get(["audit"], { limit: 100, after });
  const columns = [
    ["When (UTC)", (one) => when(one.at)],
    ["What", (one) => badge(one.what, { learned: "good", forgotten: "bad", refused: "warn" }[one.what])],
    ["Fact", (one) => h("span", { dir: "auto" }, one.text || "\u2013")],
    ["Why", (one) => h("span", { dir: "auto" }, one.why)],
    ["Message", (one) => (one.session_id ? place(ctx, { session_id: one.session_id, seq: one.first }) : "\u2013")],
  ];
  const first = await read();
  const show = (page) => table("Every change to the facts, oldest first", columns, page.changes, "There are no changes.");
  return [heading("Audit", `${num(first.total)} changes`), paged(first, read, show)];
}
