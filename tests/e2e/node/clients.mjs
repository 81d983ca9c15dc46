// Drives the server with node-redis or ioredis, in the protocol they open with today.
// Usage: node clients.mjs redis|ioredis PORT       Prints one JSON object: {case: null or what was wrong}.
import assert from 'node:assert/strict';

const [library, port] = process.argv.slice(2);
const bytes = (reply) => (Buffer.isBuffer(reply) ? [...reply] : `not bytes but ${typeof reply}`);

async function nodeRedis() {
  const { createClient, RESP_TYPES } = await import('redis');
  const client = createClient({ url: `redis://127.0.0.1:${port}`, RESP: 3 });
  client.on('error', (e) => { throw e; });
  await client.connect();
  const asBytes = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  return {
    call: (...words) => client.sendCommand(words.map(String)),
    callBytes: (...words) => asBytes.sendCommand(words.map(String)),
    callPacked: (...words) => asBytes.sendCommand(words),
    batch: (commands) => {
      const multi = client.multi();
      for (const words of commands) multi.addCommand(words);
      return multi.exec();
    },
    close: () => client.close(),
    ping: () => client.ping(),
    info: () => client.info(),
    duplicate: nodeRedis,
  };
}

async function ioRedis() {
  const { Redis } = await import('ioredis');
  const client = new Redis({ port: Number(port), host: '127.0.0.1', lazyConnect: true });
  await client.connect();
  return {
    call: (...words) => client.call(...words.map(String)),
    callBytes: (...words) => client.callBuffer(...words.map(String)),
    callPacked: (...words) => client.callBuffer(...words),
    batch: async (commands) => {
      const multi = client.multi();
      for (const words of commands) multi.call(...words);
      return (await multi.exec()).map(([error, reply]) => { if (error) throw error; return reply; });
    },
    close: () => client.quit(),
    ping: () => client.ping(),
    info: () => client.info(),
    duplicate: ioRedis,
  };
}

// A map as an object, whether the client makes one of it or leaves the flat array.
function object(reply) {
  if (reply instanceof Map) return Object.fromEntries(reply);
  if (!Array.isArray(reply)) return reply;
  return Object.fromEntries(Array.from({ length: reply.length / 2 }, (_, i) => [reply[2 * i], reply[2 * i + 1]]));
}

const cases = {
  'connects and pings': async (c) => assert.equal(await c.ping(), 'PONG'),
  'reads INFO': async (c) => assert.match(await c.info(), /redis_version:/),
  'records': async (c) => {
    assert.equal(await c.call('PLAYED', 'u1', 'a', 'b'), 2);
    assert.equal(await c.call('DELIVERED', 'u1', 'c'), 1);
  },
  'asks': async (c) => {
    assert.deepEqual(await c.call('UNSEEN', 'u1', 'a', 'x', 'b', 'y', 'c'), ['x', 'y']);
    assert.deepEqual(await c.call('SEEN', 'u1', 'a', 'x'), [1, 0]);
    assert.deepEqual(await c.call('FILTER', 'u1', 'REPLY', 'INDEXES', 'ITEMS', 'x', 'a', 'y'), [0, 2]);
    assert.deepEqual(await c.call('UNSEEN', 'u1', 'a'), []);
  },
  'reads a BITMAP as bytes': async (c) => {
    const items = Array.from({ length: 300 }, (_, i) => (i % 3 === 0 ? 'a' : `new${i}`));
    const expected = Array.from({ length: 38 }, (_, byte) => {
      let value = 0;
      for (let bit = 0; bit < 8; bit++) {
        const i = byte * 8 + bit;
        if (i < 300 && i % 3 !== 0) value |= 0x80 >> bit;
      }
      return value;
    });
    assert.deepEqual(bytes(await c.callBytes('FILTER', 'u1', 'REPLY', 'BITMAP', 'ITEMS', ...items)), expected);
  },
  'sends ids that are no text': async (c) => {
    const id = Buffer.from([0, 255, 13, 10, 128]);
    assert.equal(Number(await c.callPacked('PLAYED', 'u2', id)), 1);
    assert.deepEqual((await c.callPacked('UNSEEN', 'u2', id, 'x')).map(String), ['x']);
  },
  'reads maps': async (c) => {
    const history = object(await c.call('HISTORY', 'u1'));
    assert.equal(history.user, 'u1');
    assert.equal(Number(history.delivered), 1);
    const why = await c.call('WHY', 'u1', 'a');
    assert.ok(JSON.stringify(why instanceof Map ? [...why] : why).includes('staged'));
    assert.equal(await c.call('HISTORY', 'nobody'), null);
    assert.ok(await c.call('RING'));
    assert.ok(await c.call('RING', 'FLUSH'));
    assert.ok(await c.call('MONTHS'));
  },
  'batches with MULTI': async (c) => {
    const replies = await c.batch([['PLAYED', 'u3', 'a'], ['UNSEEN', 'u3', 'a', 'b'], ['FORGET', 'u3']]);
    assert.deepEqual(replies, [1, ['b'], 1]);
  },
  'pipelines a thousand': async (c) => {
    const replies = await Promise.all(Array.from({ length: 1000 }, (_, i) => c.call('PLAYED', `p${i % 5}`, `i${i}`)));
    assert.ok(replies.every((n) => n === 1));
    assert.deepEqual(await c.call('UNSEEN', 'p3', 'i3', 'i8', 'i4'), ['i4']);
  },
  'gets errors': async (c) => {
    await assert.rejects(c.call('PLAYED', 'u1'), /wrong number of arguments/);
    await assert.rejects(c.call('NOSUCH'), /unknown command/);
    await assert.rejects(c.call('PLAYED', 'u1', ''), /item/);
    assert.equal(await c.ping(), 'PONG');
  },
  'opens ten connections': async (c) => {
    const others = await Promise.all(Array.from({ length: 10 }, () => c.duplicate()));
    await Promise.all(others.map((o, i) => o.call('PLAYED', 'many', `i${i}`)));
    assert.deepEqual(await c.call('UNSEEN', 'many', ...others.map((_, i) => `i${i}`), 'x'), ['x']);
    await Promise.all(others.map((o) => o.close()));
  },
};

const results = {};
if (!port) {
  for (const name of Object.keys(cases)) results[name] = null;
} else {
  const client = await (library === 'redis' ? nodeRedis() : ioRedis());
  for (const [name, check] of Object.entries(cases)) {
    try {
      await check(client);
      results[name] = null;
    } catch (e) {
      results[name] = String(e.stack ?? e);
    }
  }
  await client.close();
}
console.log(JSON.stringify(results));
