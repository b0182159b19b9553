"""The layout of the keys, and the Lua scripts that read and write them.

The server runs each script as one atomic step. A script names all keys that it uses.

A server without free memory refuses a script only at the script's first write, and only if this
write may need memory. A batch that first deletes and then stores data therefore begins with the
write `R`, which may need memory: the server then refuses the whole batch or nothing.

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

from agent_memory.stores.kernel.contract import LONGEST_LEASE_SECONDS

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

_LEASES = (
    f"local LONGEST = {LONGEST_LEASE_SECONDS * 1e6:.0f}\n"
    + r"""
local function is_held(value, moment)
  local till = value and tonumber(string.sub(value, 1, 16))
  return till and till > moment and till <= moment + LONGEST
end
"""
)

_WRITING = r"""
local ENDS = KEYS[1]
local function has_token(line, token)
  return line and string.sub(line, 1, #token + 1) == token .. ' '
end
local function wake(c, id, by)
  if call('HEXISTS', KEYS[c], id) == 1 then call('ZADD', KEYS[c + 1], 'LT', by, id) end
end
"""

# Returns ids of due documents. Owners take turns: first each owner's document with the earliest due
# time, then each owner's second. Only the documents with the earliest due times are considered.
# KEYS: the keys of the collection up to `holders`. ARGV: the limit, and the number of documents to
# consider.
DUE = Script(
    COMMON,
    _LEASES,
    r"""
local limit, most, moment = tonumber(arg()), arg(), now()
local waiting, places = {}, {}
local due = call('ZRANGEBYSCORE', KEYS[2], '-inf', digits(moment), 'LIMIT', 0, most)
for n, id in ipairs(due) do
  local meta = call('HGET', KEYS[1], id)
  if not meta then  -- another program added the id
    call('ZREM', KEYS[2], id)
  elseif not is_held(call('HGET', KEYS[3], id), moment) then
    local _, owner = parts_of(meta)
    local place = (places[owner or ''] or 0) + 1
    places[owner or ''] = place
    waiting[#waiting + 1] = string.format('%09d%09d', place, n) .. id
  end
end
table.sort(waiting)
local ids = {}
for n = 1, math.min(limit, #waiting) do ids[n] = string.sub(waiting[n], 19) end
return ids
""",
)

# Appends one line; see `Kernel.extend`. KEYS: `ends`, the log, and `meta` and `due` of the head's
# collection. ARGV: the head's id and version; the line's session, seq and value; the log's end
# after the append; the microseconds after which the head is due; and the line's token if the script
# may have run already, or else an empty text.
EXTEND = Script(
    COMMON,
    _WRITING,
    r"""
local id, version, session, seq, line, stop, micros, token = unpack(ARGV)
local meta = call('HGET', KEYS[3], id)
local was = call('HGET', ENDS, session) or '0 0 ' .. seq
local last, first = string.match(was, '^(%d+) %d+ (%d+)$')
if not (meta and string.match(meta, '^[^%z]*') == version and last and last + 1 == tonumber(seq))
then
  return token ~= '' and has_token(call('HGET', KEYS[2], seq), token) and 1 or 0
end
call('HSET', KEYS[2], seq, line)
call('HSET', ENDS, session, stop .. ' ' .. first)
call('HINCRBY', ENDS, '', 1)
wake(3, id, digits(now() + micros))
return 1
""",
)

# Commits a batch. KEYS: `ends`, `names`, `layout`, and the keys of collections and logs. ARGV: 1 if
# the script may have run already, or else 0; the number of collections; the position in KEYS and
# the name of each; and the batch, as `_Packing` encodes it.
COMMIT = Script(
    COMMON,
    _LEASES,
    SELECTED,
    _WRITING,
    f"local LAYOUT = '{LAYOUT}'\n",
    r"""
local again, NOW = arg() == '1', nil
local function moment()
  NOW = NOW or now()
  return NOW
end
local NAMES = {}
for _ = 1, tonumber(arg()) do
  local c = tonumber(arg())
  NAMES[c] = arg()
end
local function collection() return tonumber(arg()) end

local function holds()
  local kind = arg()
  if kind == 'L' then
    local found = call('HGET', ENDS, arg())
    return (found and string.match(found, '^%S*') or '0') == arg()
  end
  local c, id = collection(), arg()
  if kind == 'M' then return call('HEXISTS', KEYS[c], id) == 0 end
  if kind == 'E' then return call('HEXISTS', KEYS[c], id) == 1 end
  if kind == 'V' then
    local meta = call('HGET', KEYS[c], id)
    return (meta and string.match(meta, '^[^%z]*')) == arg()
  end
  local value, holder = call('HGET', KEYS[c + 2], id), arg()
  if kind == 'H' then return (value and string.sub(value, 17)) == holder end
  return string.sub(value or '', 17) == holder or not is_held(value, moment())
end

local function count(change)
  if call('HINCRBY', ENDS, '', change) <= 0 then call('HDEL', ENDS, '') end
end
-- the members of the indexes by owner and by session; false for none
local function members_of(meta, id)
  local _, owner, session, first = parts_of(meta or '')
  return owner and owner ~= '' and owner .. '\0' .. id,
    session and session ~= '' and session .. '\0' .. first .. '\0' .. id
end
local function reindex(key, was, new)
  if was == new then return end
  if new then call('ZADD', key, 0, new) end
  if was then call('ZREM', key, was) end
end
local function remove(c, id)
  local meta = call('HGET', KEYS[c], id)
  if not meta then return end
  for _, n in ipairs({0, 2, 3}) do call('HDEL', KEYS[c + n], id) end
  for _, n in ipairs({1, 4}) do call('ZREM', KEYS[c + n], id) end
  local by_owner, by_session = members_of(meta, id)
  reindex(KEYS[c + 5], by_owner, false)
  reindex(KEYS[c + 6], by_session, false)
  if call('EXISTS', KEYS[c + 4]) == 0 then call('ZREM', KEYS[2], NAMES[c]) end
end
local function drop_lines(log, first, last)
  for from = first, last, 500 do
    local seqs = {}
    for seq = from, math.min(from + 499, last) do seqs[#seqs + 1] = seq end
    call('HDEL', log, unpack(seqs))
  end
  if last >= first then count(first - last - 1) end
end
local function drop_log(log, session)
  local length = call('HLEN', log)
  if length > 0 then count(-length) end
  call('UNLINK', log)
  call('HDEL', ENDS, session)
end
local function log_of(session)
  return string.match(call('HGET', ENDS, session) or '', '^(%d+) (%d+) (%d+)$')
end

local write = {
  A = function()
    local log, session, number, first, stop = KEYS[tonumber(arg())], arg(), arg(), arg(), arg()
    local _, _, begun = log_of(session)
    for from = 1, number, 1000 do
      local last = at + 2 * math.min(1000, number - from + 1)
      call('HSET', log, unpack(ARGV, at + 1, last))
      at = last
    end
    call('HSET', ENDS, session, stop .. ' ' .. (begun or first))
    count(number)
  end,
  T = function()
    local log, session, after, total = KEYS[tonumber(arg())], arg(), tonumber(arg()), arg()
    local stop, _, first = log_of(session)
    if not stop or after < tonumber(first) then return drop_log(log, session) end
    if after >= tonumber(stop) then return end
    drop_lines(log, after + 1, tonumber(stop))
    call('HSET', ENDS, session, string.format('%.0f', after) .. ' ' .. total .. ' ' .. first)
  end,
  X = function()
    local log, session, upto = KEYS[tonumber(arg())], arg(), tonumber(arg())
    local stop, total, first = log_of(session)
    if not stop or upto < tonumber(first) then return end
    if upto >= tonumber(stop) then return drop_log(log, session) end
    drop_lines(log, tonumber(first), upto)
    call('HSET', ENDS, session, stop .. ' ' .. total .. ' ' .. string.format('%.0f', upto + 1))
  end,
  P = function()
    local c, id, meta, body = collection(), arg(), arg(), arg()
    local was = call('HGET', KEYS[c], id)
    call('HSET', KEYS[c], id, meta)
    if body ~= '' then call('HSET', KEYS[c + 3], id, body)
    elseif was then call('HDEL', KEYS[c + 3], id) end
    if not was then
      call('ZADD', KEYS[c + 4], 0, id)
      if call('ZADD', KEYS[2], 0, NAMES[c]) == 1 then call('SETNX', KEYS[3], LAYOUT) end
    end
    local by_owner, by_session = members_of(meta, id)
    local was_by_owner, was_by_session = members_of(was, id)
    reindex(KEYS[c + 5], was_by_owner, by_owner)
    reindex(KEYS[c + 6], was_by_session, by_session)
  end,
  W = function() wake(collection(), arg(), digits(moment() + arg())) end,
  U = function()
    local c, id, micros = collection(), arg(), arg()
    if micros == '' then call('ZREM', KEYS[c + 1], id)
    elseif call('HEXISTS', KEYS[c], id) == 1 then
      call('ZADD', KEYS[c + 1], digits(moment() + micros), id)
    end
  end,
  H = function()
    local c, id, holder, micros = collection(), arg(), arg(), arg()
    if holder == '' then
      call('HDEL', KEYS[c + 2], id)
    else  -- the document exists: a condition or a `Put` of the batch ensures it
      call('HSET', KEYS[c + 2], id, digits(moment() + micros) .. holder)
    end
  end,
  D = function() remove(collection(), arg()) end,
  K = function()
    local c, index = collection(), collection()
    local ids, members = selected(KEYS[c + index], KEYS[c], false)
    for n, id in ipairs(ids) do
      remove(c, id)
      call('ZREM', KEYS[c + index], members[n])
    end
  end,
  -- may need memory, so without free memory the server refuses the script here, before it deletes
  R = function() count(0) end,
}

-- `log` and `seq`: the place of the batch's first line, if any, which begins with `token`
local token, log, seq, tail, number = arg(), arg(), arg(), arg(), tonumber(arg())
local from, done = at, true
for _ = 1, number do
  if not holds() then done = false; break end
end
if done then
  while at < #ARGV do write[arg()]() end
elseif again and token ~= '' then
  done = has_token(call('HGET', KEYS[tonumber(log)], seq), token)
end
if done then return {1, tail ~= '' and call('HGET', ENDS, tail)} end
local reply = {0}
at = from
for _ = 1, number do
  local kind = arg()
  if kind == 'L' then
    reply[#reply + 1] = call('HGET', ENDS, arg())
  else
    local c, id = collection(), arg()
    reply[#reply + 1] = call('HGET', KEYS[c], id)
    reply[#reply + 1] = call('HGET', KEYS[c + 3], id)
  end
  if kind ~= 'M' and kind ~= 'E' then arg() end
end
return reply
""",
)
