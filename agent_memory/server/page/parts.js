// The parts of views: headings, panels, tables, paged lists, and figures.

import { button, fill, h, num } from "./dom.js";

export const announce = (text) => fill(document.getElementById("status"), text);

export function heading(title, sub, ...actions) {
  return h("header", { class: "heading" },
    h("div", null, h("h1", { tabindex: "-1", dir: "auto" }, title), sub && h("p", { class: "sub" }, sub)),
    actions.some(Boolean) && h("div", { class: "actions" }, actions));
}

let panels = 0;
export function panel(title, count, ...children) {
  const id = `panel-${(panels += 1)}`;
  const told = count === null || count === undefined ? null : h("span", { class: "count" }, num(count));
  return h("section", { class: "panel", "aria-labelledby": id }, h("h2", { id }, title, told), children);
}

export const nothing = (text) => h("p", { class: "nothing" }, text);

// Each column is [title, function that returns a row's cell, CSS class].
export function table(caption, columns, rows, empty) {
  if (!rows.length) return nothing(empty);
  const body = h("tbody", { role: "rowgroup" }, rows.map((row) => line(columns, row)));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", { role: "table" }, h("caption", null, caption), // on narrow screens the CSS removes the table layout and so the implied roles
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([name, , kind]) =>
        h("th", { scope: "col", role: "columnheader", class: kind }, name)))),
      body));
}

function line(columns, row) {
  return h("tr", { role: "row" }, columns.map(([name, cell, kind], at) => {
    const given = { class: kind, "data-name": name, role: at ? "cell" : "rowheader" };
    return at ? h("td", given, cell(row)) : h("th", { ...given, scope: "row" }, cell(row));
  }));
}

// A list in pages. The button adds the next page below.
export function paged(first, read, show) {
  const place = h("div", { class: "paged" }, show(first));
  let next = first.next;
  const more = button("More", async () => {
    more.disabled = true;
    try {
      const page = await read(next);
      place.append(show(page));
      next = page.next;
      announce("More is shown.");
    } catch (error) {
      announce(error.message);
    }
    more.disabled = false;
    if (!next) more.remove();
  }, { class: "more" });
  return [place, next && more];
}

export function figures(pairs) {
  return h("dl", { class: "figures" }, pairs.filter(Boolean).map(([name, value, note]) =>
    h("div", null, h("dt", null, name), h("dd", null, value, note && h("small", null, note)))));
}

export function meter(value, most, label) {
  const share = most > 0 ? Math.max(0, Math.min(1, value / most)) : 0;
  return h("svg", { class: "meter", viewBox: "0 0 100 4", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("rect", { class: "all", width: 100, height: 4 }), h("rect", { class: "part", width: share * 100, height: 4 }));
}

export function warnings(found) {
  return found.length ? h("ul", { class: "warnings", "aria-label": "Warnings" }, found.map((one) => h("li", { dir: "auto" }, one))) : null;
}

export function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", null, label), input, hint && h("small", null, hint));
}

export function failed(error) {
  return h("div", { class: "problem", role: "alert" }, h("strong", null, error.title || "It failed"), h("p", null, error.message));
}
