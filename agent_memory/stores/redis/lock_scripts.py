"""The Lua scripts on named locks, each in one atomic step. Times are the server's.

A lock that ran out stays: whoever had it may still renew it, unless it was taken meanwhile.
"""

from __future__ import annotations

from agent_memory.stores.redis.index_scripts import TIME, script

# ARGV: owner, microseconds, whether only to renew
LOCK = script(
    TIME,
    r"""
local found = call('HMGET', KEYS[1], 'holder', 'till')
local taker, at = ARGV[1], now()
if found[1] ~= taker and (ARGV[3] == '1' or found[1] and lasts(found[2], at)) then
  return 0
end
call('HSET', KEYS[1], 'holder', taker, 'till', digits(at + ARGV[2]))
return 1
""",
)

# ARGV: owner
UNLOCK = script(
    r"""
if redis.call('HGET', KEYS[1], 'holder') == ARGV[1] then redis.call('UNLINK', KEYS[1]) end
"""
)
