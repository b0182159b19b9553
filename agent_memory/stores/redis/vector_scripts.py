"""The Lua scripts on vectors: one finds what a change is about, one writes it in an atomic step.

`versions` has for each owner who has vectors a version of them, a blank and their catalog;
`segments` the segments by owner, NUL, name, and `numbers` the number of each record by its id. In
`vectors` stands what records are found by that an earlier release wrote, until it is packed: of
these `versions` has a version alone.
"""

from __future__ import annotations

from agent_memory.stores.redis.index_scripts import script
from agent_memory.stores.redis.record_scripts import RECORDS

_VECTORS = r"""
local VECTORS, VERSIONS, NUMBERS, SEGMENTS, COLLECTION = unpack(KEYS, 5)
local function owner_in(span, id) return owner_of((select(3, parts(span, id)))) end
local at = 1
local function following()
  at = at + 1
  return ARGV[at]
end
local function each(act)
  for _ = 1, tonumber(following()) do act() end
end
"""

# ARGV: nothing, owner, session (each may be empty), after, how many owners that are to be changed
# in any case, these, how many ids, these; answers with id, owner and number of each record, and
# with each owner's name and state
FIND = script(
    RECORDS,
    _VECTORS,
    r"""
local owner, session, after = following(), following(), tonumber(following())
local found, states, known = {}, {}, {}
local function note(name)
  if known[name] then return end
  known[name] = true
  states[#states + 1] = name
  states[#states + 1] = call('HGET', VERSIONS, name) or ''
end
each(function() note(following()) end)
local ids = {}
each(function() ids[#ids + 1] = following() end)
each_matching(owner .. session == '' and ids, owner, session, after, function(id, _, whose)
  note(whose)
  found[#found + 1] = id
  found[#found + 1] = whose
  found[#found + 1] = call('HGET', NUMBERS, id) or '0'
end)
return {found, states}
""",
)

# ARGV: holder, what the collection must be (empty: whatever it is), how many owners and of each
# its name, the state it must have, the one it gets, how many segments go and their names, how many
# come and their names and bodies; how many records go, and their ids; how many come, and of each
# id, span, body and number; how many only get a number, and of each id and number. Answers with 1;
# with 0, and changes nothing, where an owner's state is another; with the collection where it is.
CHANGE = script(
    RECORDS,
    _VECTORS,
    r"""
local wanted = following()
if wanted ~= '' then
  call('SETNX', COLLECTION, wanted)
  local stored = call('GET', COLLECTION)
  if stored ~= wanted then return stored end
end
local states, dropped, written, gone, put, numbered = {}, {}, {}, {}, {}, {}
local same = true
each(function()
  local owner = following()
  same = same and (call('HGET', VERSIONS, owner) or '') == following()
  states[owner] = following()
  each(function() dropped[#dropped + 1] = owner .. '\0' .. following() end)
  each(function() written[#written + 1] = {owner .. '\0' .. following(), following()} end)
end)
each(function() gone[#gone + 1] = following() end)
each(function() put[#put + 1] = {following(), following(), following(), following()} end)
each(function() numbered[#numbered + 1] = {following(), following()} end)
for _, one in ipairs(put) do
  local was = call('HGET', SPANS, one[1])
  same = same and (not was or states[owner_in(was, one[1])] ~= nil)
end
if not same then return 0 end
if #put + #numbered > 0 then call('ZADD', OWNERS, 'XX', 0, '') end  -- refused without memory
for _, id in ipairs(gone) do
  local span = call('HGET', SPANS, id)
  if span then drop(id, span) end
  call('HDEL', NUMBERS, id)
  call('HDEL', VECTORS, id)
end
for _, one in ipairs(put) do
  local id, span, body, number = unpack(one)
  local _, _, owner, origin = parts(span, id)
  call('HSET', RECORDS, id, body)
  call('HSET', SPANS, id, span)
  call('ZADD', OWNERS, 0, owner)
  call('ZADD', ORIGINS, 0, origin)
  call('HSET', NUMBERS, id, number)
end
for _, one in ipairs(numbered) do
  call('HSET', NUMBERS, one[1], one[2])
  call('HDEL', VECTORS, one[1])
end
for _, name in ipairs(dropped) do call('HDEL', SEGMENTS, name) end
for _, one in ipairs(written) do call('HSET', SEGMENTS, one[1], one[2]) end
for owner, state in pairs(states) do
  local from, to = '[' .. owner .. '\0', '(' .. owner .. '\1'
  if call('ZRANGEBYLEX', OWNERS, from, to, 'LIMIT', 0, 1)[1] then
    call('HSET', VERSIONS, owner, state)
  else
    call('HDEL', VERSIONS, owner)
  end
end
return 1
""",
)
