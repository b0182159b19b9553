// The views, by the names in their addresses.

import { audit, facts } from "./view_facts.js";
import { file, files, notes, places, skills } from "./view_items.js";
import { search } from "./view_search.js";
import { sent } from "./view_prompts.js";
import { service, users } from "./view_service.js";
import { session, sessions } from "./view_sessions.js";
import { choose, user } from "./view_user.js";

export const VIEWS = {
  choose: { title: "Choose a user", show: choose, service: true },
  sessions: { title: "Sessions", show: sessions },
  session: { title: "Session", show: session, part: "sessions" },
  sent: { title: "What was sent", show: sent, part: "sessions" },
  search: { title: "Search", show: search },
  facts: { title: "Facts", show: facts },
  audit: { title: "Audit", show: audit },
  notes: { title: "Notes", show: notes },
  files: { title: "Files", show: files },
  file: { title: "File", show: file, part: "files" },
  skills: { title: "Skills", show: skills },
  places: { title: "Places", show: places },
  user: { title: "The user", show: user },
  service: { title: "Service", show: service, service: true },
  users: { title: "Users", show: users, service: true },
};

// The kind of block that a view requires.
const NEEDS = { facts: "extractive", audit: "extractive", files: "files", skills: "skills", places: "spatial" };

export function nav(ctx) {
  const kinds = new Set(Object.values(ctx.me.blocks));
  const own = ["sessions", "search", "facts", "audit", "notes", "files", "skills", "places", "user"];
  const named = (names) => names.filter((name) => !NEEDS[name] || kinds.has(NEEDS[name])).map((name) => [name, VIEWS[name].title]);
  return [
    ctx.user !== null && ctx.can("read") ? named(own) : [],
    ctx.can("admin") ? named(["service", "users"]) : [],
  ].filter((group) => group.length);
}
