"""The Lua scripts that change facts, each in one atomic step."""

from __future__ import annotations

from agent_memory.stores.redis.index_scripts import script

# A block's records by id, in hashes: what Python reads in `records`, what scripts read in `spans`.
# Members of `owners` are owner, NUL, time in 18 digits, NUL, id; those of `origins` session, NUL,
# id: scores are all alike. ARGV[1] tells what the last key, the session's head or the block's
# fence, must say of the lease. For vectors see `vector_scripts`.
RECORDS = r"""
local call = redis.call
local RECORDS, SPANS, OWNERS, ORIGINS = unpack(KEYS)
local function lost(how, lease)
  if how == 'holder' then return call('HGET', KEYS[#KEYS], 'holder') ~= lease end
  return how == 'epoch' and tonumber(call('GET', KEYS[#KEYS]) or 0) > tonumber(lease)
end
if lost(string.match(ARGV[1], '^(%a+):(.*)$')) then return -1 end
local function member_of(index, id)
  local ending = '\0' .. id
  for _, member in ipairs(call('ZRANGE', index, 0, -1)) do
    if string.sub(member, -#ending) == ending then return member end
  end
  return ''
end
local function parts(span, id)
  local first, last, length, rest = string.match(span, '^(%-?%d+):(%-?%d+):(%d+):(.*)$')
  if not first then  -- damaged
    return nil, nil, member_of(OWNERS, id), member_of(ORIGINS, id)
  end
  local owner = string.sub(rest, 1, length)
  return tonumber(first), tonumber(last), owner, string.sub(rest, length + 1)
end
local function owner_of(member) return string.match(member, '^[^%z]*') end
local function with(index, name)
  return call('ZRANGEBYLEX', index, '[' .. name .. '\0', '(' .. name .. '\1')
end
local function of_origin(session)
  local ids = with(ORIGINS, session)
  for at, member in ipairs(ids) do ids[at] = string.sub(member, #session + 2) end
  return ids
end
local function of_owner(owner)
  local ids = with(OWNERS, owner)
  for at, member in ipairs(ids) do ids[at] = string.sub(member, #owner + 21) end
  return ids
end
-- with each record that matches all that is given: those of ids, or of a session, or of an owner
local function each_matching(ids, owner, session, after, act)
  if not ids then ids = session ~= '' and of_origin(session) or of_owner(owner) end
  for _, id in ipairs(ids) do
    local span = call('HGET', SPANS, id)
    if span then
      local _, last, whose, origin = parts(span, id)
      if (after == 0 or not last or last > after)
        and (owner == '' or owner_of(whose) == owner)
        and (session == '' or owner_of(origin) == session)
      then
        act(id, span, owner_of(whose))
      end
    end
  end
end
local function drop(id, span)
  local _, _, owner, origin = parts(span, id)
  call('HDEL', RECORDS, id)
  call('HDEL', SPANS, id)
  call('ZREM', OWNERS, owner)
  call('ZREM', ORIGINS, origin)
end
"""

# ARGV: holder, session whose records give way and its first and last seq (empty: none), what the
# last seq of a stored record must be, then of each record id, span, body
_PUT = r"""
local session, first, last = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if #ARGV > 5 then call('ZADD', OWNERS, 'XX', 0, '') end  -- adds nothing; refused without memory
if session ~= '' then
  for _, id in ipairs(of_origin(session)) do
    local span = call('HGET', SPANS, id)
    local since, till = parts(span, id)
    if since and since <= last and till >= first then drop(id, span) end
  end
end
for at = 6, #ARGV, 3 do
  local id, span, body = unpack(ARGV, at, at + 2)
  local was = call('HGET', SPANS, id)
  if was then drop(id, was) end
  local _, _, owner, origin = parts(span, id)
  call('HSET', RECORDS, id, body)
  call('HSET', SPANS, id, span)
  call('ZADD', OWNERS, 0, owner)
  call('ZADD', ORIGINS, 0, origin)
end
"""

_DONE = "return 1\n"

# ARGV: holder, owner, session, id (each may be empty), after
_FORGET = r"""
local owner, session, name, after = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
each_matching(name ~= '' and {name}, owner, session, after, drop)
return 1
"""

# ARGV[5] is the last seq that the stored record must have; empty: there must be none
_SAME_LAST = r"""
local stored = call('HGET', SPANS, ARGV[6])
local seq = stored and select(2, parts(stored, ARGV[6]))
if (seq and string.format('%d', seq) or '') ~= ARGV[5] then return 0 end
"""

PUT_FACTS = script(RECORDS, _PUT, _DONE)
SWAP_FACT = script(RECORDS, _SAME_LAST, _PUT, _DONE)
FORGET_FACTS = script(RECORDS, _FORGET)

# ARGV: what the owners begin with; each step leaps over an owner's records
OWNERS = script(
    r"""
local beginning, found = ARGV[1], {}
local from = '[' .. beginning
while true do
  local member = redis.call('ZRANGEBYLEX', KEYS[3], from, '+', 'LIMIT', 0, 1)[1]
  local owner = member and string.match(member, '^[^%z]*')
  if not owner or string.sub(owner, 1, #beginning) ~= beginning then return found end
  found[#found + 1] = owner
  from = '(' .. owner .. '\1'
end
"""
)

FACTS = script(
    r"""
local call, owner, bodies = redis.call, ARGV[1], {}
local found = call('ZRANGEBYLEX', KEYS[3], '[' .. owner .. '\0', '(' .. owner .. '\1')
for at = 1, #found, 500 do
  local ids = {}
  for one = at, math.min(at + 499, #found) do
    ids[#ids + 1] = string.sub(found[one], #owner + 21)
  end
  for _, body in ipairs(call('HMGET', KEYS[1], unpack(ids))) do bodies[#bodies + 1] = body end
end
return bodies
"""
)
