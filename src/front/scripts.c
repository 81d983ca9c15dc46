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

/* What another program has put in the place of one of these keys is no reason to fail for all: the reader is told. Nor
 * is a text of any length: beyond ARGV[2] bytes nothing is sent. Whether keys were evicted is said by the same
 * breath. */
static const char read_text[] = "local left = tonumber(ARGV[2]) "
                                "local function read(...) "
                                "  local got = redis.pcall(...) "
                                "  if type(got) ~= 'table' then return got end "
                                "  if got.err then return got.err end "
                                "  for i = 1, #got do left = left - #got[i] end "
                                "  return left >= 0 and got or 'more than ' .. ARGV[2] .. ' bytes' "
                                "end "
                                "local meta = read('HGETALL', KEYS[1]) "
                                "local t = read('ZCARD', KEYS[3]) "
                                "if type(t) == 'number' and t <= tonumber(ARGV[1]) then "
                                "t = read('ZRANGE', KEYS[3], 0, -1, 'WITHSCORES') end "
                                "local evicted = string.match(redis.call('INFO', 'stats'), 'evicted_keys:(%d+)') "
                                "return {meta, read('HGETALL', KEYS[2]), t, evicted or '0'}";

static const char begin_text[] =
    "local epoch = redis.call('HGET', KEYS[1], 'epoch') or '0' "
    "if epoch ~= ARGV[1] then return {'GONE'} end "
    "local was = redis.call('HMGET', KEYS[1], 'seed', 'node', 'term') "
    "if ARGV[8] ~= '1' and was[1] == ARGV[3] and was[2] ~= ARGV[4] "
    "and (tonumber(was[3] or '0') or 0) > tonumber(ARGV[7]) then return {'FENCED', was[3]} end "
    "if ARGV[9] then "
    "redis.call('DEL', KEYS[1]) "
    "redis.call('HSET', KEYS[1], 'full', '0', 'clear', '1', 'to', ARGV[9], 'at', ARGV[10], "
    "'walk', '-9223372036854775808') "
    "end "
    "redis.call('HSET', KEYS[1], 'v', '2', 'epoch', ARGV[2], 'seed', ARGV[3], 'node', ARGV[4], 'run', ARGV[5], 'ev', "
    "ARGV[6], "
    "'term', ARGV[7]) "
    "return {'OK'}";

static const char cleared_text[] = GUARD "for i = 2, #KEYS do redis.call('UNLINK', KEYS[i]) end "
                                         "if ARGV[2] == '1' then redis.call('HDEL', KEYS[1], 'clear') end "
                                         "return {'OK'}";

/* A user's keys, as they are found: the fields of w, and whether something there was lost. What is of another type, or
 * claims to be newer than the feed, is as good as lost; events beyond `to`, with which each of them moves, are not
 * ours. */
#define USER                                                                                                           \
    "local function sound(key, command, ...) "                                                                         \
    "  local got = redis.pcall(command, key, ...) "                                                                    \
    "  if type(got) ~= 'table' or not got.err then return got, false end "                                             \
    "  redis.call('DEL', key) "                                                                                        \
    "  return redis.call(command, key, ...), true "                                                                    \
    "end "                                                                                                             \
    "local to = redis.call('HGET', KEYS[1], 'to') "                                                                    \
    "local function user(w, t, last) "                                                                                 \
    "  local f, no_w = sound(w, 'HMGET', 'r', 's', 'g', 'b') "                                                         \
    "  local n, no_t = sound(t, 'ZCARD') "                                                                             \
    "  local r, s = tonumber(f[1] or 0), tonumber(f[2] or 0) "                                                         \
    "  local lost = no_w or no_t or not r or not s or r ~= r or s ~= s or r < 0 or s < 0 or r > last or s > last "     \
    "  if lost then "                                                                                                  \
    "    r, s = 0, tonumber(to) "                                                                                      \
    "    redis.call('HSET', w, 'r', 0, 's', s) "                                                                       \
    "    redis.call('PERSIST', w) "                                                                                    \
    "  end "                                                                                                           \
    "  if n > 0 then redis.call('ZREMRANGEBYSCORE', t, '(' .. to, '+inf') end "                                        \
    "  return r, s, f[3], f[4], lost "                                                                                 \
    "end "                                                                                                             \
    "sound(KEYS[2], 'SCARD') "

/* Of each user the events are gathered for one ZADD; what forgets or stales comes in between, in order. */
static const char events_text[] =
    GUARD USER "if to ~= ARGV[2] then return {'MOVED', to} end "
               "local at, last = 9, tonumber(ARGV[6]) "
               "for k = 3, #KEYS, 2 do "
               "  local w, t = KEYS[k], KEYS[k + 1] "
               "  local r, s, giant, damaged, dirty = user(w, t, last) "
               "  local n, add = tonumber(ARGV[at]), {} "
               "  dirty = dirty or s > r or damaged "
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
               "redis.call('HSET', KEYS[1], 'to', ARGV[3], 'at', ARGV[4], 'first', ARGV[7], 'most', ARGV[8]) "
               "return {'OK', redis.call('SCARD', KEYS[2])}";

static const char states_text[] = GUARD USER
    "if ARGV[3] ~= '' then "
    "  if (redis.call('HGET', KEYS[1], 'walk') or 'full') ~= ARGV[2] then return {'MOVED'} end "
    "  if ARGV[3] == 'full' then "
    "    redis.call('HDEL', KEYS[1], 'walk') "
    "    redis.call('HSET', KEYS[1], 'full', '1') "
    "  else redis.call('HSET', KEYS[1], 'walk', ARGV[3]) end "
    "end "
    "local at, last = 5, tonumber(ARGV[4]) "
    "for k = 3, #KEYS, 2 do "
    "  local w, t, id, rev, n = KEYS[k], KEYS[k + 1], ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]) "
    "  at = at + 3 "
    "  local r, s = user(w, t, last) "
    "  if n == 2 and ARGV[at] == 'b' and r > 0 and s <= r then "
    "    redis.call('SREM', KEYS[2], id) "
    "  elseif rev >= r then "
    "    redis.call('DEL', w) "
    "    redis.call('HSET', w, 'r', ARGV[at - 2]) "
    "    if n > 0 then redis.call('HSET', w, unpack(ARGV, at, at + n - 1)) end "
    "    redis.call('ZREMRANGEBYSCORE', t, '-inf', rev) "
    "    if s > rev then redis.call('HSET', w, 's', s) redis.call('SADD', KEYS[2], id) "
    "    else "
    "      if n == 0 then redis.call('PEXPIRE', w, " TOMBSTONE ") end "
    "      redis.call('SREM', KEYS[2], id) "
    "    end "
    "  end "
    "  at = at + n "
    "end "
    "return {'OK'}";

const char *front_script_text(enum front_script script)
{
    static const char *const texts[FRONT_SCRIPTS] = {read_text, begin_text, cleared_text, events_text, states_text};
    return texts[script];
}
