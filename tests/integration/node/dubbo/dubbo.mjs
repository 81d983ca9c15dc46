// Dubbo for Node: Triple's raw unary bodies, and gRPC: node dubbo.mjs HOST:PORT
import { readFileSync } from 'node:fs';
import { createRegistryFromDescriptors } from '@bufbuild/protobuf';
import { Code, createPromiseClient } from '@apachedubbo/dubbo';
import { createDubboTransport, createGrpcTransport } from '@apachedubbo/dubbo-node';

import { candidates, check, refused, same } from '../checks.mjs';

const registry = createRegistryFromDescriptors(readFileSync(process.env.UNSEEN_DESCRIPTORS));
const service = registry.findService('unseen.v1.Unseen');
const options = { baseUrl: `http://${process.argv[2]}`, httpVersion: '2', idleConnectionTimeoutMs: 1000 };
const indexes = 1;

function client(create) {
  return createPromiseClient(service, create(options), { serviceVersion: '1.0.0', serviceGroup: 'recommenders' });
}

async function asksAndRecords(unseen, user) {
  const recorded = await unseen.played({ user, items: ['a', 'c'], tag: 7n });
  same([recorded.count, recorded.tag], [2, 7n]);
  same((await unseen.filter({ user, items: ['a', 'b', 'c', 'd'], reply: indexes })).indexes, [1, 3]);
  same((await unseen.filter({ user, items: candidates })).bitmap.length, 1250);
}

async function errors(unseen) {
  await refused(Code.InvalidArgument, /user/, () => unseen.filter({ items: ['a'] }));
  await refused(Code.NotFound, /./, () => unseen.history({ user: 'dj:nobody' }));
}

const unary = client(createDubboTransport);
await check("Triple, asks and records", () => asksAndRecords(unary, 'dj:1'));
await check("Triple, errors", () => errors(unary));
const rpc = client(createGrpcTransport);
await check("gRPC, asks and records", () => asksAndRecords(rpc, 'dj:2'));
await check("gRPC, errors", () => errors(rpc));
await check("gRPC, plays in a stream", async () => {
  async function* plays() {
    for (let i = 1n; i <= 500n; i += 1n) { yield { user: 'dj:s', items: [`${i}`], tag: i }; }
  }
  const tags = [];
  for await (const reply of rpc.playedStream(plays())) { tags.push(reply.tag); }
  same(tags, Array.from({ length: 500 }, (_, i) => BigInt(i + 1)));
});
