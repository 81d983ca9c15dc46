// grpc-js, with messages read from the proto file at run time: node grpc.mjs HOST:PORT
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

import { candidates, check, refused, same } from './checks.mjs';

const address = process.argv[2];
const load = (file) => grpc.loadPackageDefinition(loader.loadSync(file, {
  includeDirs: [process.env.UNSEEN_PROTO], enums: String, longs: Number, defaults: true,
}));
const plain = grpc.credentials.createInsecure();
const { Unseen } = load('unseen/v1/unseen.proto').unseen.v1;
const unseen = new Unseen(address, plain);
const { status } = grpc;

function call(client, method, request, options = {}) {
  return new Promise((resolve, reject) => {
    client[method](request, options, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}
const ask = (request, options) => call(unseen, 'Filter', request, options);
const play = (request, options) => call(unseen, 'Played', request, options);

function healthClient() {
  const { Health } = load('grpc/health/v1/health.proto').grpc.health.v1;
  return new Health(address, plain);
}

await check("asks and records", async () => {
  same(await play({ user: 'js:1', items: ['a', 'c'], tag: 7 }), { count: 2, tag: 7, code: 0, message: '' });
  same((await ask({ user: 'js:1', items: ['a', 'b', 'c', 'd'] })).bitmap, Buffer.from([0x50]));
  same((await ask({ user: 'js:1', items: ['a', 'b', 'c', 'd'], reply: 'INDEXES' })).indexes, [1, 3]);
  same((await ask({ user: 'js:1', items: ['a', 'b', 'c', 'd'], reply: 'ITEMS' })).items, ['b', 'd']);
  same((await ask({ user: 'js:1', items: ['a', 'b', 'd'], reply: 'ITEMS', limit: 1 })).items, ['b']);
  same((await call(unseen, 'Delivered', { user: 'js:1', items: ['b'] })).count, 1);
  same((await ask({ user: 'js:1', items: ['b', 'd'], reply: 'ITEMS' })).items, ['d']);
});

await check("binary ids", async () => {
  const [user, items] = [Buffer.from([0xff, 0]), [Buffer.from([0]), Buffer.from([0xfe])]];
  await play({ binaryUser: user, binaryItems: items.slice(0, 1) });
  same((await ask({ binaryUser: user, binaryItems: items, reply: 'ITEMS' })).binaryItems, items.slice(1));
});

await check("10,000 candidates", async () => {
  await play({ user: 'js:many', items: candidates.slice(0, 5000) });
  const { bitmap } = await ask({ user: 'js:many', items: candidates });
  same(bitmap.length, 1250);
  same(bitmap.subarray(0, 625), Buffer.alloc(625));
});

await check("gzip", async () => {
  const zipped = new Unseen(address, plain, { 'grpc.default_compression_algorithm': 2 });
  same((await call(zipped, 'Filter', { user: 'js:gzip', items: candidates })).bitmap, Buffer.alloc(1250, 0xff));
  zipped.close();
});

await check("2,000 plays in a stream", () => new Promise((resolve, reject) => {
  const tags = [];
  const stream = unseen.PlayedStream();
  stream.on('data', (reply) => tags.push(reply.code === 0 ? reply.tag : reply));
  stream.on('error', reject);
  stream.on('end', () => {
    try {
      resolve(same(tags, Array.from({ length: 2000 }, (_, i) => i + 1)));
    } catch (error) {
      reject(error);
    }
  });
  for (let tag = 1; tag <= 2000; tag += 1) {
    stream.write({ user: `js:s${tag % 10}`, items: [`${tag}`], tag });
  }
  stream.end();
}));

await check("a deadline", async () => {
  const stream = unseen.PlayedStream({ deadline: Date.now() + 500 });
  stream.write({ user: 'js:d', items: ['a'], tag: 1 }); // and no end
  const code = await new Promise((resolve) => {
    stream.on('data', () => {});
    stream.on('error', (error) => resolve(error.code));
    stream.on('end', () => {});
  });
  same(code, status.DEADLINE_EXCEEDED);
  same((await ask({ user: 'js:d', items: ['a'] }, { deadline: Date.now() + 60000 })).bitmap, Buffer.from([0]));
});

await check("a stream cancelled", async () => {
  const stream = unseen.PlayedStream();
  stream.write({ user: 'js:x', items: ['a'], tag: 1 });
  await new Promise((resolve) => stream.once('data', resolve));
  const over = new Promise((resolve) => stream.on('error', (error) => resolve(error.code)));
  stream.cancel();
  same(await over, status.CANCELLED);
  same((await ask({ user: 'js:x', items: ['a'] })).bitmap, Buffer.from([0]));
});

await check("errors by status", async () => {
  await refused(status.INVALID_ARGUMENT, /user/, () => ask({ items: ['a'] }));
  await refused(status.INVALID_ARGUMENT, /./, () => ask({ user: 'js:e' }));
  await refused(status.OUT_OF_RANGE, /./, () => play({ user: 'js:e', items: ['a'], at: 4102444800001 }));
  await refused(status.NOT_FOUND, /./, () => call(unseen, 'History', { user: 'js:nobody' }));
  const Other = grpc.makeGenericClientConstructor({
    call: { path: '/unseen.v1.Unseen/Nonsense', requestStream: false, responseStream: false,
      requestSerialize: Buffer.from, requestDeserialize: Buffer.from,
      responseSerialize: Buffer.from, responseDeserialize: Buffer.from },
  }, 'Other');
  const other = new Other(address, plain);
  await refused(status.UNIMPLEMENTED, /./, () => call(other, 'call', ''));
  other.close();
});

await check("health", async () => {
  const health = healthClient();
  same((await call(health, 'Check', { service: '' })).status, 'SERVING');
  same((await call(health, 'Check', { service: 'unseen.v1.Unseen' })).status, 'SERVING');
  await refused(status.NOT_FOUND, /./, () => call(health, 'Check', { service: 'other' }));
  for (const [service, wanted] of [['', 'SERVING'], ['other', 'SERVICE_UNKNOWN']]) {
    const watch = health.Watch({ service });
    watch.on('error', () => {});
    same((await new Promise((resolve) => watch.once('data', resolve))).status, wanted);
    watch.cancel();
  }
  health.close();
});

await check("500 calls at once", async () => {
  const calls = Array.from({ length: 500 }, (_, i) => ask({ user: `js:c${i}`, items: ['a', 'b'] }));
  const replies = await Promise.all(calls);
  same(new Set(replies.map((reply) => reply.bitmap[0])), new Set([0xc0]));
});

unseen.close();
