// The confirmation before a deletion, with a preview of its effects, and the receipt after it.

import { download } from "./api.js";
import { badge, button, fill, h, json, mono, when } from "./dom.js";
import { announce, failed, table } from "./parts.js";

// Shows a dialog. Returns the result of `act` after a confirmation, and undefined without one.
export function ask(title, preview, { word, act, confirm, input }) {
  const before = document.activeElement;
  return new Promise((resolve) => {
    let answer;
    const typed = word && h("input", { autocomplete: "off", spellcheck: "false", "aria-label": `Type ${word}` });
    const go = h("button", { type: "submit", class: "danger", disabled: Boolean(word) }, confirm);
    const trouble = h("div", { role: "status" });
    if (typed) typed.addEventListener("input", () => { go.disabled = typed.value !== word; });
    const submit = async (event) => {
      event.preventDefault();
      go.disabled = true;
      fill(trouble, "One moment\u2026");
      try {
        answer = await act();
        dialog.close();
      } catch (error) {
        go.disabled = false;
        fill(trouble, failed(error));
      }
    };
    const form = h("form", { onsubmit: submit },
      h("h2", { id: "dialog-title" }, title), h("div", { class: "preview" }, preview), input,
      typed && h("p", null, "To confirm, type ", mono(word), typed), trouble,
      h("div", { class: "actions" }, button("Cancel", () => dialog.close(), { autofocus: !typed && !input }), go));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before && before.isConnected) before.focus();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("input")?.focus();
  });
}

export function receipt(given, title = "Receipt") {
  const open = given.parts.filter((part) => part.state !== "done" && part.state !== "not supported");
  announce(open.length ? "Not complete: see the receipt." : "Done. This is the receipt.");
  return h("section", { class: "panel receipt", "aria-labelledby": "receipt" },
    h("h2", { id: "receipt" }, title),
    h("p", null, given.kind, " ", mono(given.id), ", namespace ", mono(given.namespace), ", ", when(given.at), " UTC, ",
      given.signature ? "signed" : "not signed: the service has no key for that", "."),
    table("The outcome for each place", [
      ["Place", (part) => part.place],
      ["State", (part) => badge(part.state, part.state === "done" ? "good" : part.state === "not supported" ? "" : "bad")],
      ["Why", (part) => part.why],
    ], given.parts, "There are no places."),
    button("Download the receipt", () => download(`receipt-${given.kind}-${given.id}.json`, json(given))));
}
