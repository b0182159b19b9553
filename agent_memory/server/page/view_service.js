// The whole service: pending work, dead letters, spending, users, and receipts.

import { receipt } from "./dialog.js";
import { badge, button, fill, h, mono, money, num, said, when } from "./dom.js";
import { announce, failed, field, figures, heading, meter, paged, panel, table } from "./parts.js";

const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "\u2013");

function act(name, done, run) {
  const made = button(name, async () => {
    made.disabled = true;
    announce("One moment\u2026");
    try {
      await done(await run());
    } catch (error) {
      announce(error.message);
    }
    made.disabled = false;
  }, { class: "act small" });
  return made;
}

function blocks(ctx, stats) {
  const told = async (answer) => {
    const bad = answer.absorbed.filter((one) => one.error !== null).length;
    await ctx.again();
    announce(`${answer.absorbed.length - bad} done${bad ? `, ${bad} failed again` : ""}.`);
  };
  const columns = [
    ["Block", ([name]) => mono(name)],
    ["State", ([, one]) => (one.failing ? badge("failing", "bad") : one.lag ? badge("behind", "warn") : badge("up to date", "good"))],
    ["Pending messages", ([, one]) => num(one.lag), "number"],
    ["Dead letters", ([, one]) => num(one.dead_letters), "number"],
    ["", ([name, one]) => one.dead_letters > 0 && act("Retry", told, () => ctx.api.post(["operations", "retry"], { block: name }))],
  ];
  return [table("Blocks that absorb", columns, Object.entries(stats.blocks), "No block absorbs anything."),
    act("Absorb pending messages now", told, () => ctx.api.post(["operations", "flush"], {}))];
}

async function dead(ctx) {
  const read = (after) => ctx.api.get(["operations", "dead-letters"], { limit: 100, after });
  const first = await read();
  const columns = [
    ["Session", (one) => mono(one.session_id)],
    ["Messages", (one) => `#${one.first} to #${one.last}`],
    ["Block", (one) => mono(one.block)],
    ["Tried", (one) => num(one.attempts), "number"],
    ["Since (UTC)", (one) => when(one.since)],
    ["Error", (one) => said(one.error)],
  ];
  return panel("Dead letters", first.total, paged(first, read, (page) =>
    table("Dead letters: messages that blocks gave up absorbing", columns, page.dead_letters, "There are no dead letters.")));
}

function spent(spending, stats) {
  const columns = [
    ["For", ([name]) => name],
    ["Calls", ([, one]) => num(one.calls), "number"],
    ["Failed", ([, one]) => num(one.failures), "number"],
    ["Tokens sent", ([, one]) => num(one.prompt_tokens), "number"],
    ["Answered", ([, one]) => num(one.completion_tokens), "number"],
    ["Embedded", ([, one]) => num(one.embedding_tokens), "number wide"],
    ["Cost", ([, one]) => money(one.cost), "number"],
  ];
  const rows = [...Object.entries(spending.purposes), ["this process, in all", stats.usage]];
  const today = spending.today;
  return panel("Spend", null, figures([
    today && [`Today, ${today.day}`, money(today.cost), `${num(today.calls)} calls, ${num(today.tokens)} tokens${today.reached ? `; reached: ${today.reached}` : ""}`],
    ["Unchanged prompts", [percent(spending.cacheable_tokens, spending.prompt_tokens), meter(spending.cacheable_tokens, spending.prompt_tokens, "Unchanged share of prompts")], "what a provider's cache can serve"],
    ["Queries", num(spending.recalls), `no result in ${percent(spending.empty_recalls, spending.recalls)}`],
  ]), table("Usage by purpose, of all processes, some seconds late. Costs need known prices", columns, rows, ""));
}

function verify(ctx) {
  const input = h("textarea", { rows: 4, required: true, spellcheck: "false" });
  const place = h("div", null);
  const run = async (event) => {
    event.preventDefault();
    try {
      fill(place, receipt(await ctx.api.post(["receipts", "verify"], { receipt: JSON.parse(input.value) }), "The parts of the receipt now"));
    } catch (error) {
      fill(place, failed(error instanceof SyntaxError ? { title: "This is not a receipt", message: "Paste the whole JSON." } : error));
    }
  };
  return panel("Verify a receipt", null, h("form", { onsubmit: run }, field("The receipt, as JSON", input), h("button", { type: "submit" }, "Verify")), place);
}

export async function service(ctx) {
  const [stats, spending, letters] = await Promise.all([ctx.api.get(["stats"]), ctx.api.get(["spending"]), dead(ctx)]);
  return [heading("Service"), figures([["Sessions", num(stats.sessions)], ["Messages", num(stats.messages)]]),
    panel("Absorbing", null, blocks(ctx, stats)), letters, spent(spending, stats), verify(ctx)];
}

export async function users(ctx) {
  const read = (after) => ctx.api.get(["users"], { limit: 100, after });
  const first = await read();
  const columns = [
    ["User", (one) => (ctx.can("read") ? h("a", { href: ctx.toUser(one.id), dir: "auto" }, one.id) : mono(one.id))],
    ["Sessions", (one) => num(one.sessions), "number"],
    ["Messages", (one) => num(one.messages), "number"],
    ["", (one) => ctx.can("read") && h("a", { href: ctx.toUser(one.id, "user"), "aria-label": `Export or delete ${one.id}` }, ctx.can("delete") ? "export, delete" : "export")],
  ];
  return [heading("Users", `${num(first.total)} with a session`), paged(first, read, (page) => table("Users, by id", columns, page.users, "There are no sessions yet."))];
}
