"""The Lua scripts that change sessions, each in one atomic step. Times are the server's."""

from __future__ import annotations

from dataclasses import dataclass

from agent_memory.stores.redis.index_scripts import INDEX, NO_INDEX, Script, script
from agent_memory.stores.redis.key_scripts import KEYS_OF_LOG


@dataclass(frozen=True, slots=True)
class SessionScript:
    """A script that changes a session.

    Attributes:
        whole: Changes the indexes too; their keys follow the session's.
        cluster: Leaves them alone, for clusters, on which they are on another node.
    """

    whole: Script
    cluster: Script


HEAD_FIELDS = ("version", "begun", "end", "total", "user", "deleting", "body", "mark")
_FIELDS = ", ".join(f"'{name}'" for name in HEAD_FIELDS)

# The sessions' scripts begin with the keys of head and log, and the session's id.
_SESSION = r"""
local HEAD, LOG = KEYS[1], KEYS[2]
local sid = ARGV[1]
local function lost(holder)
  return holder ~= '' and call('HGET', HEAD, 'holder') ~= holder
end
local function is(version, begun)
  local found = call('HMGET', HEAD, 'version', 'begun')
  return found[1] == version and found[2] == begun
end
local function assign(was, user)
  if user ~= '' then
    call('HSET', HEAD, 'user', user)
  else
    call('HDEL', HEAD, 'user')
  end
  belong(sid, was, user)
end
"""


def _session(*parts: str) -> SessionScript:
    return SessionScript(script(INDEX, _SESSION, *parts), script(NO_INDEX, _SESSION, *parts))


# The last of these arguments are the entries.
_APPEND = r"""
local _, was, begun, stop, mark, version, last, total, user, body, within, again =
  unpack(ARGV, 1, 12)
local found = call('HMGET', HEAD, 'version', 'begun', 'end', 'user', 'rested', 'mark')
if found[1] then
  if found[1] ~= was or found[2] ~= begun or found[3] ~= stop or (found[6] or '') ~= mark then
    local reply = call('HMGET', HEAD, %(fields)s)
    local next = again == '1' and call('HGET', LOG, stop + 1)
    reply[#reply + 1] = next and string.match(next, '^[^\n]*')
    return reply
  end
elseif was ~= '0' then
  return false
else
  call('HSET', HEAD, 'begun', begun, 'deleting', '0')
  enlist(sid)
end
for at = %(first)s, #ARGV do call('HSET', LOG, stop + at - %(first)s + 1, ARGV[at]) end
%(more)s
if version ~= was then
  call('HSET', HEAD, 'version', version, 'body', body)
  assign(found[4], user)
end
call('HSET', HEAD, 'end', last, 'total', total)
fall_due(sid, owner_of(user, sid), within)
if not found[5] then return 1 end
call('HDEL', HEAD, 'rested')
return 2
"""

APPEND = _session(_APPEND % {"fields": _FIELDS, "first": "13", "more": ""})

# An append on terms. Further arguments: the time before which keys are forgotten, the names of its
# keys, those of them that are thought to be known, the number of keys to keep, and these, each a
# name and what is kept. Where others are known than is thought, the answer is what is known.
APPEND_ONCE = _session(
    KEYS_OF_LOG,
    r"""
local since, names, thought, count = unpack(ARGV, 13, 16)
local names_known, values = known(names, since)
if names_known ~= thought then return {'keys', values, call('HMGET', HEAD, """
    + _FIELDS
    + r""")} end
local first = 17 + 2 * count
""",
    _APPEND
    % {
        "fields": _FIELDS,
        "first": "first",
        "more": """
for at = 17, first - 1, 2 do put_key(ARGV[at], ARGV[at + 1]) end
if since ~= '' then prune_keys(since) end
""",
    },
)

# What is known of names, and the head. ARGV: names, and the time before which keys are forgotten.
LOOK = _session(
    KEYS_OF_LOG,
    r"""
local _, values = known(ARGV[2], ARGV[3])
return {'keys', values, call('HMGET', HEAD, """
    + _FIELDS
    + ")}",
)

READ_KEYS = _session(
    KEYS_OF_LOG,
    r"""
local values = {}
for number = counted('left') + 1, counted('queued') do
  local name, value = key_at(placed(number))
  if name then values[#values + 1] = name .. ' ' .. value end
end
return values
""",
)

# ARGV: holder, and keys, each a name and what is kept
PUT_KEYS = _session(
    KEYS_OF_LOG,
    r"""
if lost(ARGV[2]) then return -1 end
if call('EXISTS', HEAD) == 0 then return 0 end
for at = 3, #ARGV, 2 do put_key(ARGV[at], ARGV[at + 1]) end
return 1
""",
)

# `mark` names the call that moved a head last: one that is sent twice finds that it was done, and a
# session that was begun anew, as of the time of a former one, is not taken for that. ARGV: holder,
# the head as it was, as it is to be, and the seq after which the entries stand (empty: no change)
MOVE = _session(
    KEYS_OF_LOG,
    r"""
local _, holder, version, begun, stop, mark, after, user, deleting, body, expired, cut =
  unpack(ARGV, 1, 12)
local found = call('HMGET', HEAD, 'version', 'end', 'total', 'user', 'expired', 'mark')
local last, total = found[2], found[3]
if found[6] == mark and is(after, begun) then return {last, total} end
if lost(holder) then return -1 end
if version == '0' and cut ~= '' then
  if found[1] then return 0 end
  last, total = cut, '0'
  call('HSET', HEAD, 'begun', begun)
  enlist(sid)
elseif not is(version, begun) then
  return 0
elseif cut ~= '' then
  if last ~= stop then return 0 end
  if tonumber(cut) < tonumber(stop) then
    local entry = call('HGET', LOG, cut)
    last, total = cut, entry and string.match(entry, '^(%d+) ') or '0'
  end
end
for at = 13, #ARGV do call('HSET', LOG, cut + at - 12, ARGV[at]) end
if #ARGV > 12 then
  last, total = cut + #ARGV - 12, string.match(ARGV[#ARGV], '^(%d+) ')
end
call('HSET', HEAD, 'version', after, 'deleting', deleting, 'body', body, 'mark', mark)
call('HSET', HEAD, 'end', last, 'total', total, 'expired', expired)
assign(found[4], user)
if deleting == '1' or not found[1] then fall_due(sid, owner_of(user, sid)) end
for seq = last + 1, found[2] or 0 do call('HDEL', LOG, seq) end
if cut ~= '' and found[1] then cut_keys(last) end
if found[1] then
  for seq = (tonumber(found[5]) or 0) + 1, expired do call('HDEL', LOG, seq) end
end
return {last, total}
""",
)

DELETE = _session(
    r"""
if lost(ARGV[2]) then return -1 end
local user = call('HGET', HEAD, 'user')
local told = supersede(HEAD)
call('UNLINK', HEAD, LOG)
forget(sid, user)
return {user or '', told}
""",
)

LEASE = _session(
    r"""
local found = call('HMGET', HEAD, 'version', 'holder', 'till')
local taker, at = ARGV[2], now()
if not found[1] then return 0 end
if found[2] ~= taker and (ARGV[4] == '1' or found[2] and lasts(found[3], at)) then
  return 0
end
local till = at + ARGV[3]
call('HSET', HEAD, 'holder', taker, 'till', digits(till))
hold(sid, till)
if found[2] == taker then return {} end
local told = supersede(HEAD)
if told[1] then call('HSET', HEAD, 'epoch', told[1]) end
return told
""",
)

RELEASE = _session(
    r"""
if call('HGET', HEAD, 'holder') == ARGV[2] then
  call('HDEL', HEAD, 'holder', 'till')
  let_go(sid)
  return 1
end
""",
)

PUT_OFF = _session(
    r"""
local _, version, begun, stop, micros, rest = unpack(ARGV)
if not is(version, begun) or call('HGET', HEAD, 'end') ~= stop then return 0 end
if rest == '1' then call('HSET', HEAD, 'rested', '') end
schedule(sid, owner_of(call('HGET', HEAD, 'user'), sid), micros ~= '' and now() + micros)
return 1
""",
)

READ = script(
    r"""
local call, found = redis.call, redis.call('HMGET', KEYS[1], 'end', 'expired')
local stop, after = tonumber(found[1]) or 0, math.max(ARGV[1], tonumber(found[2]) or 0)
local entries = {after}
if ARGV[2] ~= '' then stop = math.min(stop, after + ARGV[2]) end
for seq = after + 1, stop, 500 do
  local seqs = {}
  for one = seq, math.min(seq + 499, stop) do seqs[#seqs + 1] = one end
  for _, entry in ipairs(call('HMGET', KEYS[2], unpack(seqs))) do
    if entry then entries[#entries + 1] = entry end
  end
end
return entries
"""
)

# Of sessions, whose heads are the keys, those that go on past a block's cursor. ARGV: the block.
LAGS = script(
    r"""
local lags = {}
for at, key in ipairs(KEYS) do
  local found = redis.call('HMGET', key, 'version', 'begun', 'end', 'total', 'expired',
    'user', 'deleting')
  if found[1] and found[7] == '0' then
    local body = redis.call('HGET', key, 'body')
    local cursors = string.match(body, '^{"cursors":(%b{})')
    -- of what is damaged all waits: one session's must not fail a question to all
    local whole, decoded = pcall(cjson.decode, cursors or body)
    if whole and not cursors then decoded = decoded.cursors end
    cursors = whole and type(decoded) == 'table' and decoded or {}
    local after = math.max(tonumber(cursors[ARGV[1]]) or 0, tonumber(found[5]) or 0)
    if tonumber(found[3]) and after < tonumber(found[3]) then
      lags[#lags + 1] = {at - 1, found[1], found[2], found[3], found[4], after, found[6] or ''}
    end
  end
end
return lags
"""
)

# For clusters: who holds the lease notes a block that he is about to write to. ARGV: holder, block.
FENCE = script(
    r"""
local found = redis.call('HMGET', KEYS[1], 'holder', 'epoch')
if found[1] ~= ARGV[1] then return false end
redis.call('HSET', KEYS[1], 'fence:' .. ARGV[2], '')
return found[2]
"""
)

# ARGV: epoch, and for how many seconds a write that began under an older one can come
RAISE = script(
    r"""
if tonumber(redis.call('GET', KEYS[1]) or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
end
"""
)
