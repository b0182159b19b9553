"""The layout of the keys, and the Lua scripts that read them.

The server runs each script as one atomic step. A script names all keys that it uses.

Keys of a namespace:

- `ends`: a hash. Its field for a session is "seq total first": the last seq of the log, the running
  total of tokens there, and the first stored seq. The field "" is the number of lines in all logs.
- `names`: a sorted set of the collections.
- `layout`: the version of this layout.
- `log`, one for each session: a hash of lines by seq.

Keys of a collection, in the order of `KINDS`:

- `meta`: a hash of documents: version, owner, session, first, last, about, separated by NUL.
- `due`: a sorted set of ids, by their due times.
- `holders`: a hash of leases: the end of the lease, then its holder.
- `body`: a hash of `body` and `data`, for documents with at least one of them.
- `ids`: a sorted set of ids, by bytes.
- `owners`: a sorted set of "owner NUL id", by bytes.
- `sessions`: a sorted set of "session NUL first NUL id", by bytes.
"""

from __future__ import annotations

from hashlib import sha1

KINDS = ("meta", "due", "holders", "body", "ids", "owners", "sessions")
LAYOUT = 1


class Script:
    """A Lua script, and its SHA-1 digest, by which a server recognizes it."""

    def __init__(self, *parts: str) -> None:
        self.source = "".join(parts)
        self.digest = sha1(self.source.encode(), usedforsecurity=False).hexdigest()


COMMON = r"""
local call, at = redis.call, 0
local function arg() at = at + 1; return ARGV[at] end
local function now()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
local function digits(micros) return string.format('%016.0f', micros) end
local function some_of(ids, from) return unpack(ids, from, math.min(from + 3999, #ids)) end
local function all_of(key, ids)
  if #ids <= 4000 then return #ids > 0 and call('HMGET', key, unpack(ids)) or {} end
  local found = {}
  for from = 1, #ids, 4000 do
    for _, one in ipairs(call('HMGET', key, some_of(ids, from))) do found[#found + 1] = one end
  end
  return found
end
local function parts_of(meta)
  return string.match(meta, '^([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)%z([^%z]*)%z')
end
"""

# Defines `selected`, which returns the ids, index members and metas of a scan's documents. ARGV:
# the number of NULs before the id in an index member; the least and the greatest member; the limit;
# four digits, 1 for an active filter and 0 for none; the values of the filters `owner`, `session`,
# `first_below` and `last_above`.
SELECTED = r"""
local function id_in(member, nuls)
  local from = 1
  for _ = 1, nuls do from = (string.find(member, '%z', from) or #member) + 1 end
  return string.sub(member, from)
end
local function selected(index, metas, wants_metas)
  local nuls, least, most, limit = tonumber(arg()), arg(), arg(), tonumber(arg())
  local filters, owner, session, below, above = arg(), arg(), arg(), arg(), arg()
  local filtered = filters ~= '0000'
  local members = filtered and call('ZRANGEBYLEX', index, least, most)
    or call('ZRANGEBYLEX', index, least, most, 'LIMIT', 0, limit)
  local ids = {}
  for n, member in ipairs(members) do ids[n] = id_in(member, nuls) end
  if not (filtered or wants_metas) then return ids, members, {} end
  local found = all_of(metas, ids)
  if not filtered then return ids, members, found end
  local left, places, kept = {}, {}, {}
  for n, id in ipairs(ids) do
    if #left == limit then break end
    local v, o, s, first, last = parts_of(found[n] or '')
    if v and (string.sub(filters, 1, 1) == '0' or o == owner)
      and (string.sub(filters, 2, 2) == '0' or s == session)
      and (string.sub(filters, 3, 3) == '0' or first < below)
      and (string.sub(filters, 4, 4) == '0' or last > above) then
      left[#left + 1], places[#places + 1], kept[#kept + 1] = id, members[n], found[n]
    end
  end
  return left, places, kept
end
"""

# KEYS: `ends`, then `meta` and `body` of each collection. ARGV: whether to return tails and bodies
# (1 or 0 each); then for each collection the number of ids, and the ids.
DOCUMENTS = Script(
    COMMON,
    r"""
local tails, bodies, reply = arg() == '1', arg() == '1', {}
for c = 2, #KEYS, 2 do
  local ids = {}
  for n = 1, tonumber(arg()) do ids[n] = arg() end
  reply[#reply + 1] = all_of(KEYS[c], ids)
  reply[#reply + 1] = bodies and all_of(KEYS[c + 1], ids) or {}
  reply[#reply + 1] = tails and all_of(KEYS[1], ids) or {}
end
return reply
""",
)

# KEYS: `ends`, `meta` and `body` of the collection, and an index. ARGV: whether to return tails,
# bodies, and only names (1 or 0 each); then the arguments of `selected`.
SCAN = Script(
    COMMON,
    SELECTED,
    r"""
local tails, bodies, names = arg() == '1', arg() == '1', arg() == '1'
local ids, _, metas = selected(KEYS[4], KEYS[2], not names)
return {ids, names and {} or metas, bodies and not names and all_of(KEYS[3], ids) or {},
  tails and all_of(KEYS[1], ids) or {}}
""",
)

# KEYS: `ends`, and the logs. ARGV: for each log its session, followed by "seqs", the number of seqs
# and the seqs; or by "after", a seq and the limit (empty for none).
LINES = Script(
    COMMON,
    r"""
local reply = {}
for n = 2, #KEYS do
  local session, how, seqs = arg(), arg(), {}
  if how == 'seqs' then
    for place = 1, tonumber(arg()) do seqs[place] = arg() end
  else
    local after, limit = tonumber(arg()), arg()
    local stop, _, first = string.match(call('HGET', KEYS[1], session) or '', '^(%d+) (%d+) (%d+)$')
    if stop then
      first, stop = math.max(after + 1, first), tonumber(stop)
      if limit ~= '' then stop = math.min(stop, first + limit - 1) end
      for seq = first, stop do seqs[#seqs + 1] = seq end
    end
  end
  reply[#reply + 1] = seqs[1] or 0
  reply[#reply + 1] = all_of(KEYS[n], seqs)
end
return reply
""",
)

# KEYS: `owners` of the collection. ARGV: the first index member to read, the prefix of the owners,
# the limit.
OWNERS = Script(
    COMMON,
    r"""
local from, beginning, found = arg(), arg(), {}
local most = tonumber(arg())
while #found < most do
  local member = call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, 1)[1]
  local owner = member and string.match(member, '^[^%z]*')
  if not owner or string.sub(owner, 1, #beginning) ~= beginning then break end
  found[#found + 1] = owner
  from = '(' .. owner .. '\1'
end
return found
""",
)
