// Requests to the service. A request has the key in a header, never in a URL or a cookie, so that no
// request of another site can contain the key. sessionStorage keeps the key until the tab is closed,
// so that a reload does not sign out.

const KEPT = "agent-memory key";
const ROOT = new URL("v1/", document.baseURI);

export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || "The service did not answer.");
    this.status = status;
    this.title = told.title || "It failed";
    this.kind = String(told.type || "").split(":").pop();
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEPT),
  set: (value) => sessionStorage.setItem(KEPT, value),
  drop: () => sessionStorage.removeItem(KEPT),
};

function segment(text) {
  if (text === "." || text === "..") {
    throw new Problem(0, { detail: `No address can name the id "${text}". Use the library or the command line.` });
  }
  return encodeURIComponent(text);
}

async function send(method, path, { query = {}, body, signal } = {}) {
  const url = new URL(path.map(segment).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const headers = { Authorization: `Bearer ${key.get() ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const given = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
  let answer;
  try {
    answer = await fetch(url, { ...given, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "No answer", detail: "The service cannot be reached. Is it running?" });
  }
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  return answer;
}

// Parses JSON to show it unchanged. If the browser supports it, numbers stay as they were sent,
// without being rounded or written differently.
export function exact(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (name, value, { source }) =>
    (typeof value === "number" && source !== undefined && String(value) !== source ? JSON.rawJSON(source) : value));
}

// Calls for one user, or about the service if the user is null. `all` reads every page of a list.
export class Api {
  constructor(user, signal) {
    this.user = user;
    this.signal = signal;
  }

  async text(method, path, { query = {}, body } = {}) {
    const whose = this.user === null ? {} : { user_id: this.user };
    return (await send(method, path, { query: { ...query, ...whose }, body, signal: this.signal })).text();
  }

  async ask(method, path, given) {
    return JSON.parse(await this.text(method, path, given));
  }

  get(path, query) {
    return this.ask("GET", path, { query });
  }

  post(path, body) {
    return this.ask("POST", path, { body });
  }

  async all(path, field, query = {}) {
    const found = [];
    let after;
    do {
      const page = await this.get(path, { ...query, limit: 500, after });
      found.push(...page[field]);
      after = page.next;
    } while (after);
    return found;
  }

  async export() {
    const text = await this.text("GET", ["user", "export"]);
    const last = text.trimEnd().split("\n").pop() || "{}";
    if (JSON.parse(last).kind !== "end") {
      throw new Problem(0, { title: "The export is incomplete", detail: "It has no last line. Try again." });
    }
    return text;
  }
}

export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/octet-stream" }));
  const link = document.createElement("a");
  link.setAttribute("href", url);
  link.setAttribute("download", name.replace(/[^\w.-]+/g, "_"));
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
