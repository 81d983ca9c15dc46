#include "front/scripts.h"

/* What each that writes begins with. */
#define GUARD                                                                                                          \
    "local epoch = redis.call('HGET', KEYS[1], 'epoch') "                                                              \
    "if not epoch then return {'GONE'} end "                                                                           \
    "if epoch ~= ARGV[1] then return {'FENCED', epoch} end "

/* A day, as FRONT_TOMBSTONE_MS. */
#define TOMBSTONE "86400000"

/* As FRONT_EVENTS_MAX. */
#define EVENTS_MAX "128"

static const char read_text[] = "local t = redis.call('ZCARD', KEYS[3]) "
                                "if t <= tonumber(ARGV[1]) then "
                                "t = redis.call('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES') end "
                                "return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2]), t}";

static const char begin_text[] =
    "local epoch = redis.call('HGET', KEYS[1], 'epoch') or '0' "
    "if epoch ~= ARGV[1] then return {'GONE'} end "
    "if ARGV[7] then "
    "redis.call('DEL', KEYS[1]) "
    "redis.call('HSET', KEYS[1], 'v', '1', 'full', '0', 'clear', '1', 'to', ARGV[7], 'at', ARGV[8], "
    "'walk', '-9223372036854775808') "
    "end "
    "redis.call('HSET', KEYS[1], 'epoch', ARGV[2], 'seed', ARGV[3], 'node', ARGV[4], 'run', ARGV[5], 'ev', ARGV[6]) "
    "return {'OK'}";

static const char cleared_text[] = GUARD "for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end "
                                         "if ARGV[2] == '1' then redis.call('HDEL', KEYS[1], 'clear') end "
                                         "return {'OK'}";

/* Of each user the events are gathered for one ZADD; what forgets or stales comes in between, in order. */
static const char events_text[] =
    GUARD "local to = redis.call('HGET', KEYS[1], 'to') "
          "if to ~= ARGV[2] then return {'MOVED', to} end "
          "local at = 6 "
          "for k = 3, #KEYS, 2 do "
          "  local w, t = KEYS[k], KEYS[k + 1] "
          "  local f = redis.call('HMGET', w, 'r', 'g', 's', 'b') "
          "  local r, giant, dirty = tonumber(f[1] or 0), f[2], f[3] or f[4] "
          "  local n, add = tonumber(ARGV[at]), {} "
          "  at = at + 1 "
          "  for i = 1, n do "
          "    local kind, seq, member = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2] "
          "    at = at + 3 "
          "    if seq > r then "
          "      if kind == 'e' then "
          "        if not giant then add[#add + 1] = seq add[#add + 1] = member end "
          "      elseif kind == 'f' then "
          "        redis.call('DEL', w, t) "
          "        redis.call('HSET', w, 'r', seq) "
          "        redis.call('PEXPIRE', w, " TOMBSTONE ") "
          "        r, giant, dirty, add = seq, false, false, {} "
          "      else "
          "        redis.call('HSET', w, 's', seq) "
          "        redis.call('PERSIST', w) "
          "        dirty = true "
          "      end "
          "    end "
          "  end "
          "  if #add > 0 then "
          "    redis.call('ZADD', t, unpack(add)) "
          "    dirty = dirty or redis.call('ZCARD', t) > " EVENTS_MAX " "
          "  end "
          "  if dirty then redis.call('SADD', KEYS[2], string.sub(w, tonumber(ARGV[5]))) end "
          "end "
          "redis.call('HSET', KEYS[1], 'to', ARGV[3], 'at', ARGV[4]) "
          "return {'OK', redis.call('SCARD', KEYS[2])}";

static const char states_text[] =
    GUARD "if ARGV[3] ~= '' then "
          "  if (redis.call('HGET', KEYS[1], 'walk') or 'full') ~= ARGV[2] then return {'MOVED'} end "
          "  if ARGV[3] == 'full' then "
          "    redis.call('HDEL', KEYS[1], 'walk') "
          "    redis.call('HSET', KEYS[1], 'full', '1') "
          "  else redis.call('HSET', KEYS[1], 'walk', ARGV[3]) end "
          "end "
          "local at = 4 "
          "for k = 3, #KEYS, 2 do "
          "  local w, t, user, rev, n = KEYS[k], KEYS[k + 1], ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]) "
          "  at = at + 3 "
          "  local f = redis.call('HMGET', w, 'r', 's') "
          "  local s = tonumber(f[2] or 0) "
          "  if n == 2 and ARGV[at] == 'b' and f[1] and s <= tonumber(f[1]) then "
          "    redis.call('SREM', KEYS[2], user) "
          "  elseif rev >= tonumber(f[1] or 0) then "
          "    redis.call('DEL', w) "
          "    redis.call('HSET', w, 'r', ARGV[at - 2]) "
          "    if n > 0 then redis.call('HSET', w, unpack(ARGV, at, at + n - 1)) "
          "    elseif s <= rev then redis.call('PEXPIRE', w, " TOMBSTONE ") end "
          "    redis.call('ZREMRANGEBYSCORE', t, '-inf', rev) "
          "    if s > rev then redis.call('HSET', w, 's', f[2]) "
          "    else redis.call('SREM', KEYS[2], user) end "
          "  end "
          "  at = at + n "
          "end "
          "return {'OK'}";

const char *front_script_text(enum front_script script)
{
    static const char *const texts[FRONT_SCRIPTS] = {read_text, begin_text, cleared_text, events_text, states_text};
    return texts[script];
}
