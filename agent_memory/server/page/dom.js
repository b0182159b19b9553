// Builds elements from values. A child is a text or an element, never markup, so stored data is
// always shown as text.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "rect", "line"]);

export function h(tag, props, ...children) {
  const made = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new TypeError(`${name} takes a function`);
      made.addEventListener(name.slice(2), value);
    } else if (name === "href" && !String(value).startsWith("#/")) {
      throw new TypeError("A link leads to a view of this page");
    } else {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.flat(3).filter((one) => one !== null && one !== undefined && one !== false));
  return made;
}

export function fill(place, ...children) {
  place.replaceChildren(...children.flat(3).filter(Boolean));
  return place;
}

// A value as text. Objects become JSON, because their own toString may return anything.
export const words = (value) => (typeof value === "object" && value !== null ? json(value) : String(value));
export const said = (text, kind = "") => h("div", { class: `said ${kind}`, dir: "auto" }, words(text));
export const mono = (text) => h("code", { dir: "auto" }, words(text));
export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, words(text));
export const num = (value) => (value === null || value === undefined ? "\u2013" : value.toLocaleString("en"));

export function when(at) {
  if (!at) return "\u2013";
  const told = new Date(at);
  if (Number.isNaN(told.getTime())) return String(at);
  const utc = told.toISOString();
  return h("time", { datetime: utc, title: `${told.toString()}` }, `${utc.slice(0, 10)} ${utc.slice(11, 16)}`);
}

export function money(cost) {
  return cost === null || cost === undefined ? "unknown" : `$${cost.toFixed(cost && cost < 0.01 ? 5 : 2)}`;
}

export const json = (value) => JSON.stringify(value, null, 2);

export function button(text, action, props = {}) {
  return h("button", { type: "button", onclick: action, ...props }, text);
}
