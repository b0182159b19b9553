// The recalls for a question, the records left out of the context, and the reasons.

import { fill, h } from "./dom.js";
import { announce, failed, field, heading, panel, warnings } from "./parts.js";
import { factsOf, leftOut, recalled } from "./recalls.js";

export async function search(ctx) {
  const question = h("input", { type: "search", required: true, "data-first": true, maxlength: 20000 });
  const session = h("input", { autocomplete: "off", placeholder: "any" });
  const found = h("div", null);
  const run = async (event) => {
    event?.preventDefault();
    fill(found, h("p", { class: "nothing" }, "Looking\u2026"));
    const [id, again] = [session.value || undefined, { ...ctx, again: run }];
    try {
      const [told, hits, facts] = await Promise.all([
        ctx.api.post(["explain"], { question: question.value, session_id: id }),
        ctx.api.post(["search"], { query: question.value, session_id: id, limit: 20 }),
        factsOf(ctx),
      ]);
      const given = told.given_up.map((one) => `${one.block} gave up ${one.session_id} #${one.first} to #${one.last}: ${one.error}`);
      fill(found, warnings([...told.warnings, ...given]), h("div", { class: "beside" },
        h("div", { class: "side" },
          panel("Recalled in a context", told.recalls.length, recalled(again, told.recalls, facts)),
          panel("Left out of the context", told.left_out.length, leftOut(again, told.left_out, facts))),
        h("div", { class: "side" }, panel("Found by a search, best first", hits.results.length, recalled(again, hits.results, facts)))));
      announce(`${told.recalls.length} recalled, ${told.left_out.length} left out, ${hits.results.length} found.`);
    } catch (error) {
      fill(found, failed(error));
    }
  };
  return [heading("Search", "Shows the records that a question would recall now, with scores, and the records left out."),
    h("form", { class: "search", role: "search", onsubmit: run }, field("Question", question), field("In the session", session),
      h("button", { type: "submit", class: "primary" }, "Look")), found];
}
