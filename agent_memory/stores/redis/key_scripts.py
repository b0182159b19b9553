"""Lua on the keys of appends: they stand in the hash of a session's log.

`key:<name>` holds a key: its place in the queue, when it was kept (microseconds), seq, end, total
and digest. The queue is in order of time and of seqs: `queue:<place>` holds a name, `queued` is the
last place of all, and `left` the last one that was taken from its front.
"""

from __future__ import annotations

KEYS_OF_LOG = r"""
local function placed(number) return string.format('%.0f', number) end
local function counted(field) return tonumber(call('HGET', LOG, field) or 0) end
local function put_key(name, about)
  local place = placed(call('HINCRBY', LOG, 'queued', 1))
  call('HSET', LOG, 'key:' .. name, place .. ' ' .. about, 'queue:' .. place, name)
end
-- the key that has a place in the queue; one that was kept anew has another
local function key_at(place)
  local name = call('HGET', LOG, 'queue:' .. place)
  local value = name and call('HGET', LOG, 'key:' .. name)
  if value and string.match(value, '^%d+') == place then return name, value end
end
local function drop_key(number, stays)
  local place = placed(number)
  local name, value = key_at(place)
  if name then
    if stays(value) then return false end
    call('HDEL', LOG, 'key:' .. name)
  end
  call('HDEL', LOG, 'queue:' .. place)
  return true
end
local function prune_keys(since)
  local left, queued = counted('left'), counted('queued')
  local function stays(value)
    return tonumber(string.match(value, '^%d+ (%-?%d+)')) >= tonumber(since)
  end
  local last = math.min(queued, left + 1000)
  local first = left
  while left < last and drop_key(left + 1, stays) do left = left + 1 end
  if left > first then call('HSET', LOG, 'left', placed(left)) end
end
local function cut_keys(stop)
  local left, queued = counted('left'), counted('queued')
  local function stays(value)
    return tonumber(string.match(value, '^%d+ %-?%d+ (%d+)')) <= tonumber(stop)
  end
  local last = queued
  while queued > left and drop_key(queued, stays) do queued = queued - 1 end
  if queued < last then call('HSET', LOG, 'queued', placed(queued)) end
end
-- of names, each followed by a comma, those that are known, and what is kept of them
local function known(names, since)
  local found, values = '', {}
  for name in string.gmatch(names, '[^,]+') do
    local value = call('HGET', LOG, 'key:' .. name)
    local at = value and tonumber(string.match(value, '^%d+ (%-?%d+)'))
    if value and (since == '' or at >= tonumber(since)) then
      found = found .. name .. ','
      values[#values + 1] = name .. ' ' .. value
    end
  end
  return found, values
end
"""
