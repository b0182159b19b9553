// The choice of a user, and a user's sizes, export and deletion.

import { download } from "./api.js";
import { ask, receipt } from "./dialog.js";
import { button, fill, h, mono, num } from "./dom.js";
import { announce, field, figures, heading, panel } from "./parts.js";

export async function choose(ctx) {
  const named = ctx.me.users.filter((one) => !one.endsWith("*"));
  const known = named.length === ctx.me.users.length ? named
    : ctx.can("admin") ? (await ctx.api.get(["users"], { limit: 500 })).users.map((one) => one.id) : named;
  const input = h("input", { name: "user", required: true, "data-first": true, autocomplete: "off", spellcheck: "false" });
  const go = (event) => {
    event.preventDefault();
    location.hash = ctx.toUser(input.value);
  };
  return [heading("Choose a user", `The key is for ${ctx.me.users.map((one) => (one === "*" ? "everybody" : one)).join(", ")}.`),
    h("form", { class: "search", onsubmit: go }, field("User id", input), h("button", { type: "submit", class: "primary" }, "Show")),
    known.length > 0 && h("ul", { class: "paths" }, known.map((one) => h("li", null, h("a", { href: ctx.toUser(one) }, mono(one)))))];
}

// The number of items of each kind. Kinds without a configured block are left out.
async function sizes(ctx) {
  const count = async (path, name) => {
    try {
      return [name, (await ctx.api.get([path], { limit: 1 })).total];
    } catch (error) {
      if (error.kind === "not-configured") return null;
      throw error;
    }
  };
  const all = ctx.api.all(["sessions"], "sessions").then((found) => [["Sessions", found.length], ["Messages", found.reduce((sum, one) => sum + one.messages, 0)]]);
  const lists = [["facts", "Valid facts"], ["notes", "Notes"], ["files", "Files"], ["skills", "Skills"], ["places", "Observations"]];
  const found = [...(await all), ...(await Promise.all(lists.map(([path, name]) => count(path, name))))];
  return found.filter(Boolean);
}

export async function user(ctx) {
  const [found, whole] = [await sizes(ctx), h("div", null)];
  const take = button("Export everything", async () => {
    take.disabled = true;
    try {
      announce("The export is in progress.");
      const text = await ctx.api.export();
      download(`${ctx.user}.jsonl`, text);
      announce(`The export has ${num(text.trimEnd().split("\n").length)} lines.`);
    } catch (error) {
      announce(error.message);
    }
    take.disabled = false;
  });
  const erase = ctx.can("delete") && button("Delete everything", async () => {
    const answer = await ask("Delete everything of this user?", [
      h("p", null, "Everything is erased permanently. Export it first if you may need it."),
      figures(found.map(([name, size]) => [name, num(size)]))],
    { word: ctx.user, confirm: "Delete everything", act: () => ctx.api.ask("DELETE", ["user"]) });
    if (answer) fill(whole, heading("Deleted", "Keys for only this user are deleted too."), receipt(answer, "Everything is deleted"));
  }, { class: "act danger" });
  fill(whole, heading(ctx.user, "All data of this user", take, erase), figures(found.map(([name, size]) => [name, num(size)])),
    panel("Content of an export", null, h("p", null, "One JSON object per line: sessions with their messages, notes, facts, changes, the profile, files, skills and observations. The last line marks the end.")));
  return whole;
}
