// Notes, files, skills, and observations.

import { ask } from "./dialog.js";
import { badge, button, h, mono, num, said, when } from "./dom.js";
import { announce, heading, nothing, paged, table } from "./parts.js";

function remover(ctx, title, text, path, query) {
  if (!ctx.can("delete")) return null;
  return button("Delete", async () => {
    const answer = await ask(title, said(text), { confirm: "Delete it", act: () => ctx.api.ask("DELETE", path, { query }) });
    if (!answer) return;
    if (path[0] === "file") location.hash = ctx.to("files");
    else await ctx.again();
    announce("Deleted.");
  }, { class: "act small" });
}

// The metadata of an item, if there is any.
function more(metadata) {
  return Object.keys(metadata).length ? h("details", null, h("summary", null, "Metadata"), said(JSON.stringify(metadata, null, 2), "raw")) : null;
}

async function pages(ctx, path, field, caption, columns, empty) {
  const read = (after) => ctx.api.get([path], { limit: 100, after });
  const first = await read();
  return [first, paged(first, read, (page) => table(caption, columns, page[field], empty))];
}

export async function notes(ctx) {
  const [first, list] = await pages(ctx, "notes", "notes", "Notes, oldest first", [
    ["Note", (one) => [said(one.text), more(one.metadata)]],
    ["Since (UTC)", (one) => when(one.created_at)],
    ["Session", (one) => (one.session_id ? h("a", { href: ctx.to("session", one.session_id), dir: "auto" }, one.session_id) : "\u2013")],
    ["", (one) => remover(ctx, "Delete this note?", one.text, ["notes", one.id])],
  ], "There are no notes.");
  return [heading("Notes", `${num(first.total)} notes`), list];
}

export async function files(ctx) {
  const read = (after) => ctx.api.get(["files"], { limit: 100, after });
  const first = await read();
  const show = (page) => page.paths.length
    ? h("ul", { class: "paths" }, page.paths.map((path) => h("li", null, h("a", { href: ctx.to("file", path) }, mono(path)))))
    : nothing("There are no files.");
  return [heading("Files", `${num(first.total)} stored by a model`), paged(first, read, show)];
}

export async function file(ctx) {
  const one = await ctx.api.get(["file"], { path: ctx.parts[0] });
  return [heading(one.path, ["version ", mono(one.version)], remover(ctx, "Delete this file?", one.path, ["file"], { path: one.path })), said(one.text, "raw")];
}

export async function skills(ctx) {
  const [first, list] = await pages(ctx, "skills", "skills", "Skills, by name", [
    ["Skill", (one) => [mono(one.name), one.shared && badge("shared"), one.tags.map((tag) => badge(tag))]],
    ["What it does", (one) => [said(one.description),
      (one.steps.length > 0 || one.body) && h("details", null, h("summary", null, "Steps"), h("ol", null, one.steps.map((step) => h("li", { dir: "auto" }, step))), one.body && said(one.body, "raw"))]],
    ["", (one) => !one.shared && remover(ctx, "Delete this skill?", one.name, ["skills", one.name])],
  ], "There are no skills.");
  return [heading("Skills", `${num(first.total)} for this user`), list];
}

export async function places(ctx) {
  const [first, list] = await pages(ctx, "places", "observations", "Observations, oldest first", [
    ["Observed", (one) => [said(one.text), more(one.metadata)]],
    ["Where", (one) => mono(one.position.map((part) => +part.toFixed(3)).join(", "))],
    ["When (UTC)", (one) => when(one.at)],
    ["Confidence", (one) => one.confidence.toFixed(2), "number"],
    ["", (one) => remover(ctx, "Delete this observation?", one.text, ["places", one.id])],
  ], "There are no observations.");
  return [heading("Places", `${num(first.total)} observed`), list];
}
