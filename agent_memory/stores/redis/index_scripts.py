"""The Lua scripts on the indexes of a namespace: its sessions, those of each user, and dues."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1

from agent_memory.stores.base import LONGEST_LEASE_SECONDS


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the digest by which a server that has seen it knows it."""

    source: str
    digest: str


def script(*parts: str) -> Script:
    """A script of parts that stand one after the other."""
    source = "".join(parts)
    return Script(source, sha1(source.encode(), usedforsecurity=False).hexdigest())


TIME = rf"""
local LONGEST = {LONGEST_LEASE_SECONDS * 1e6:.0f}
"""
TIME += r"""
local call = redis.call
local function now()
  local time = call('TIME')
  return time[1] * 1000000 + time[2]
end
local function digits(micros) return string.format('%016.0f', micros) end
local function lasts(till, at) return tonumber(till) > at and tonumber(till) <= at + LONGEST end
"""

# The indexes of a namespace. Members of `users` are user, NUL, session; those of `queue`, which
# has what is due or will be and is not held, are owner, NUL, due time, NUL, session: scores are all
# alike, so that members stand in order of their bytes. `turns` has for each owner in the queue the
# time of his first session, `dues` for each session its due time and owner, held or not, and `held`
# when the lease of each session that is held runs out.
#
# A server that is out of memory refuses what needs more of it, and nothing is taken back of what a
# script did before. So in all scripts what can be refused comes first.
INDEX = (
    TIME
    + r"""
local SESSIONS, USERS, QUEUE, TURNS, DUES, HELD, LAYOUT = unpack(KEYS, #KEYS - 6)
local function owner_of(user, sid)
  return user and user ~= '' and 'u' .. user or 's' .. sid
end
local function place(was, sid)
  return string.sub(was, 17) .. '\0' .. string.sub(was, 1, 16) .. '\0' .. sid
end
local function first_of(owner, last, skip)
  return call('ZRANGEBYLEX', QUEUE, '[' .. owner .. '\0', last, 'LIMIT', skip, 1)[1]
end
local function advance(owner)
  local first = first_of(owner, '(' .. owner .. '\1', 0)
  if first then
    call('ZADD', TURNS, string.sub(first, #owner + 2, #owner + 17), owner)
  else
    call('ZREM', TURNS, owner)
  end
end
local function leave(was, sid)
  if was then
    call('ZREM', QUEUE, place(was, sid))
    pcall(advance, string.sub(was, 17))  -- an owner looked at too early does no harm
  end
end
local function enter(due, sid)
  call('ZADD', QUEUE, 0, place(due, sid))
  advance(string.sub(due, 17))
end
local function schedule(sid, owner, due)
  local was = call('HGET', DUES, sid)
  if due then
    due = digits(due) .. owner
    call('HSET', DUES, sid, due)
    leave(was, sid)
    if not call('ZSCORE', HELD, sid) then enter(due, sid) end
  else
    call('HDEL', DUES, sid)
    leave(was, sid)
  end
end
local function fall_due(sid, owner, within)
  local was, due = call('HGET', DUES, sid), now() + (within or 0)
  if was then due = math.min(due, tonumber(string.sub(was, 1, 16))) end
  if was ~= digits(due) .. owner then schedule(sid, owner, due) end
end
local function hold(sid, till)
  call('ZADD', HELD, digits(till), sid)
  leave(call('HGET', DUES, sid), sid)
end
local function let_go(sid)
  local due = call('HGET', DUES, sid)
  if due then enter(due, sid) end
  call('ZREM', HELD, sid)
end
local function enlist(sid)
  call('ZADD', SESSIONS, 0, sid)
  call('SETNX', LAYOUT, '2')
end
local function belong(sid, was, user)
  if was and was ~= '' and was ~= user then call('ZREM', USERS, was .. '\0' .. sid) end
  if user and user ~= '' then call('ZADD', USERS, 0, user .. '\0' .. sid) end
end
local function supersede() return {} end
local function forget(sid, user)
  schedule(sid)
  belong(sid, user)
  call('ZREM', HELD, sid)
  call('ZREM', SESSIONS, sid)
end
"""
)

# The same functions, where indexes and records are on other nodes. There a lease is not looked at
# when records are written, so each holding has a number (`epoch`), and each block that was written
# to under one is noted (`fence:` and its name): who takes over raises the blocks' fences to his.
NO_INDEX = (
    TIME
    + r"""
local function leave_alone() end
local function supersede(head)
  local told = {digits(math.max(now(), (call('HGET', head, 'epoch') or 0) + 1))}
  for _, name in ipairs(call('HKEYS', head)) do
    if string.sub(name, 1, 6) == 'fence:' then told[#told + 1] = string.sub(name, 7) end
  end
  return told
end
local owner_of, schedule, fall_due = leave_alone, leave_alone, leave_alone
local hold, let_go, enlist, belong, forget =
  leave_alone, leave_alone, leave_alone, leave_alone, leave_alone
"""
)

# As `fairly` orders: the first session of each owner, in order of their due times, then the second
# of each, and so on. The owners whose turn it is are known by the time of their first.
DUE = script(
    INDEX,
    r"""
local at, limit, ids = now(), tonumber(ARGV[1]), {}
for _, sid in ipairs(call('ZRANGEBYSCORE', HELD, '-inf', digits(at))) do let_go(sid) end
for _, sid in ipairs(call('ZRANGEBYSCORE', HELD, '(' .. digits(at + LONGEST), '+inf')) do
  let_go(sid)
end
local owners = call('ZRANGEBYSCORE', TURNS, '-inf', digits(at), 'LIMIT', 0, limit)
local turn = 0
while #ids < limit and #owners > 0 do
  local firsts, left = {}, {}
  for _, owner in ipairs(owners) do
    local found = first_of(owner, '(' .. owner .. '\0' .. digits(at + 1), turn)
    if found then
      left[#left + 1] = owner
      local due = string.sub(found, #owner + 2, #owner + 17)
      firsts[#firsts + 1] = {due, string.sub(found, #owner + 19)}
    end
  end
  table.sort(firsts, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  for _, first in ipairs(firsts) do
    if #ids < limit then ids[#ids + 1] = first[2] end
  end
  owners, turn = left, turn + 1
end
return ids
""",
)

# of some sessions, each followed by its user
WAKE = script(
    INDEX,
    r"""
for at = 1, #ARGV, 2 do
  local sid = ARGV[at]
  if call('ZSCORE', SESSIONS, sid) then fall_due(sid, owner_of(ARGV[at + 1], sid)) end
end
""",
)

# On a cluster an index is written in a call of its own, and a writer may die, or be overtaken,
# before its other call. So an append first has its session due in time, and notes when
# (`touched`); who looks away from a session, or drops it, has it looked at again once no append
# that began before can still be under way. ARGV: session, user.
_APART = (
    INDEX
    + r"""
local TOUCHED, sid, user = KEYS[1], ARGV[1], ARGV[2]
local GRACE = 30000000
local function look_again()
  local touched = call('HGET', TOUCHED, sid)
  if not touched then return nil end
  if touched + GRACE > now() then return touched + GRACE end
  call('HDEL', TOUCHED, sid)
end
"""
)

TOUCH = script(
    _APART,
    """
call('HSET', TOUCHED, sid, digits(now()))
enlist(sid)
belong(sid, false, user)
fall_due(sid, owner_of(user, sid), ARGV[3])
""",
)
REMIND = script(_APART, "fall_due(sid, owner_of(user, sid), ARGV[3])")
BELONG = script(_APART, "belong(sid, false, user)")
HOLD = script(_APART, "hold(sid, now() + ARGV[3])")
LET_GO = script(_APART, "let_go(sid)")
LOOK_AWAY = script(
    _APART,
    """
local due, again = ARGV[3] ~= '' and now() + ARGV[3], look_again()
if again then due = due and math.min(due, again) or again end
schedule(sid, owner_of(user, sid), due)
""",
)
DROP = script(
    _APART,
    """
local was, again = call('HGET', DUES, sid), look_again()
if again then
  schedule(sid, was and string.sub(was, 17) or owner_of(user, sid), again)
else
  if was and string.sub(was, 17, 17) == 'u' then belong(sid, string.sub(was, 18), '') end
  forget(sid, user)
end
""",
)
