// connect-node: the protocol of Connect and that of gRPC, over HTTP/2: node connect.mjs HOST:PORT
import { readFileSync } from 'node:fs';
import { createFileRegistry, fromBinary } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { Code, createClient } from '@connectrpc/connect';
import { createConnectTransport, createGrpcTransport, Http2SessionManager } from '@connectrpc/connect-node';

import { candidates, check, refused, same } from './checks.mjs';

const files = fromBinary(FileDescriptorSetSchema, readFileSync(process.env.UNSEEN_DESCRIPTORS));
const service = createFileRegistry(files).getService('unseen.v1.Unseen');
const baseUrl = `http://${process.argv[2]}`;
const sessions = [];

function client(create, options = {}) {
  const sessionManager = new Http2SessionManager(baseUrl);
  sessions.push(sessionManager);
  return createClient(service, create({ baseUrl, httpVersion: '2', sessionManager, ...options }));
}
const unary = client(createConnectTransport);
const rpc = client(createGrpcTransport);
const indexes = 1;

async function asksAndRecords(unseen, user) {
  const recorded = await unseen.played({ user, items: ['a', 'c'], tag: 7n });
  same([recorded.count, recorded.tag], [2, 7n]);
  const asked = await unseen.filter({ user, items: ['a', 'b', 'c', 'd'], reply: indexes });
  same(asked.indexes, [1, 3]);
  const many = await unseen.filter({ user, items: candidates });
  same(many.bitmap.length, 1250);
}

async function errors(unseen) {
  await refused(Code.InvalidArgument, /user/, () => unseen.filter({ items: ['a'] }));
  await refused(Code.OutOfRange, /./, () => unseen.played({ user: 'cn:e', items: ['a'], at: 4102444800001n }));
  await refused(Code.NotFound, /./, () => unseen.history({ user: 'cn:nobody' }));
}

await check("Connect, asks and records", () => asksAndRecords(unary, 'cn:1'));
await check("Connect, errors", () => errors(unary));
await check("Connect, a deadline that is far", async () => {
  same((await unary.filter({ user: 'cn:d', items: ['a'] }, { timeoutMs: 60000 })).bitmap, new Uint8Array([0x80]));
});
await check("Connect, streams are refused", async () => {
  async function* plays() {
    yield { user: 'cn:s', items: ['a'] };
  }
  const read = async () => {
    for await (const reply of unary.playedStream(plays())) { return reply; }
    return undefined;
  };
  let failed;
  try {
    await read();
  } catch (error) {
    failed = error;
  }
  same(failed !== undefined, true);
});
await check("gRPC, asks and records", () => asksAndRecords(rpc, 'cn:2'));
await check("gRPC, errors", () => errors(rpc));
await check("gRPC, plays in a stream", async () => {
  async function* plays() {
    for (let i = 1n; i <= 500n; i += 1n) { yield { user: 'cn:s', items: [`${i}`], tag: i }; }
  }
  const tags = [];
  for await (const reply of rpc.playedStream(plays())) { tags.push(reply.tag); }
  same(tags, Array.from({ length: 500 }, (_, i) => BigInt(i + 1)));
});

sessions.forEach((session) => session.abort());
