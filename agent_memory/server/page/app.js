// The page's frame: sign-in, the user, and the view that the address names.

import { Api, key } from "./api.js";
import { badge, button, fill, h, mono } from "./dom.js";
import { announce, failed, field } from "./parts.js";
import { VIEWS, nav } from "./views.js";

let me = null;
let running = null;
let last = null; // the last user shown, whose views stay in the menu beside the service's views

export const address = (...parts) => `#/${parts.map((one) => encodeURIComponent(one)).join("/")}`;

const parse = () => {
  try {
    return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return [];
  }
};

// The user of a key for a single user, else null.
const onlyUser = () => (me.users.length === 1 && !me.users[0].endsWith("*") ? me.users[0] : null);

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function frame() {
  return [
    h("a", { class: "skip", href: "#/", onclick: skip }, "Skip to the content"),
    h("div", { id: "top" }),
    h("main", { id: "main", tabindex: "-1" }),
    h("div", { id: "status", role: "status", "aria-live": "polite" }),
  ];
}

function signOut(told) {
  key.drop();
  me = last = null;
  history.replaceState(null, "", location.pathname);
  signIn(told);
}

function signIn(told) {
  fill(document.getElementById("top"));
  const input = h("input", { type: "password", name: "key", autocomplete: "off", spellcheck: "false", required: true, "data-first": true });
  const trouble = h("div", { role: "status" }, told && h("p", { class: "problem" }, told));
  const submit = async (event) => {
    event.preventDefault();
    key.set(input.value.trim());
    try {
      me = await new Api(null).get(["me"]);
      input.value = "";
      await show();
    } catch (error) {
      key.drop();
      fill(trouble, failed(error));
      input.focus();
    }
  };
  fill(document.getElementById("main"), h("form", { class: "sign-in", onsubmit: submit },
    h("h1", null, "agent-memory"),
    h("p", null, "The prompts that models were sent, the memory of each user, and why."),
    field("Key", input, "This tab stores the key until you close the tab or sign out."), trouble,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
    h("p", { class: "hint" }, "No key yet? The service's operator creates one: ", mono("agent-memory keys create"))));
  document.title = "Sign in \u00b7 agent-memory";
  input.focus();
}

function bar(ctx, name) {
  const links = nav(ctx).map((group) => h("ul", null, group.map(([view, title]) => h("li", null,
    h("a", { href: ctx.to(view), "aria-current": view === name ? "page" : null }, title)))));
  return [
    h("header", { class: "bar" }, h("a", { class: "brand", href: address() }, "agent-memory"),
      ctx.user !== null && h("span", { class: "whose" }, h("span", { class: "label" }, "user"), mono(ctx.user),
        onlyUser() === null && h("a", { href: address("choose") }, "change")),
      h("span", { class: "who" }, h("span", { dir: "auto" }, me.label || me.name), badge(me.rights.join(", "))),
      button("Sign out", () => signOut())),
    h("nav", { "aria-label": "Views" }, links),
  ];
}

// A user's view has the address #/u/USER/VIEW/..., a view of the service #/VIEW.
function context(parts, signal) {
  const named = parts[0] === "u" && parts.length > 1;
  const [name, ...rest] = named ? parts.slice(2) : parts;
  const user = named ? parts[1] : last;
  const service = Boolean(VIEWS[name]?.service);
  const to = (view, ...more) => (VIEWS[view].service ? address(view, ...more) : address("u", user, view, ...more));
  return {
    me, user, name, parts: rest, to, named,
    toUser: (one, view = "sessions") => address("u", one, view),
    can: (right) => me.rights.includes(right),
    api: new Api(service ? null : user, signal),
    again: () => show(),
    signOut,
  };
}

function home() {
  const one = onlyUser();
  if (one !== null && me.rights.includes("read")) return address("u", one, "sessions");
  return me.rights.includes("read") ? address("choose") : address("service");
}

async function show() {
  if (key.get() === null) return signIn();
  running?.abort();
  for (const open of document.querySelectorAll("dialog")) open.close();
  const mine = (running = new AbortController());
  try {
    me ??= await new Api(null).get(["me"]);
    const ctx = context(parse(), mine.signal);
    const view = VIEWS[ctx.name];
    if (!view || ctx.named === Boolean(view.service)) return location.replace(home());
    last = ctx.user;
    fill(document.getElementById("top"), bar(ctx, view.part ?? ctx.name));
    const main = document.getElementById("main");
    main.setAttribute("aria-busy", "true");
    const found = await view.show(ctx).catch((error) => {
      if (error.status === 401 || error.name === "AbortError") throw error;
      return failed(error);
    });
    if (mine.signal.aborted) return;
    main.removeAttribute("aria-busy");
    fill(main, found);
    const title = main.querySelector("h1");
    document.title = `${title?.textContent ?? view.title} \u00b7 agent-memory`;
    const aim = document.getElementById("here") ?? title;
    aim?.scrollIntoView({ block: aim.id === "here" ? "center" : "end" });
    (main.querySelector("[data-first]") ?? title ?? main).focus({ preventScroll: true });
    announce(view.title);
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return signOut("The key is not valid or has expired.");
    fill(document.getElementById("main"), failed(error), button("Try again", show));
  }
}

document.body.replaceChildren(...frame());
window.addEventListener("hashchange", show);
show();
