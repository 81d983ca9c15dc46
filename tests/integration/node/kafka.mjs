// A client of Kafka that does what its standard input says: node kafka.mjs HOST:PORT
//
// A line in is a command as JSON, a line out is its answer: {"ok": ...}, or {"error": "..."}. Keys and values are
// base64, or null.
import { createInterface } from 'node:readline';
import { Kafka, logLevel } from 'kafkajs';

const kafka = new Kafka({
  clientId: 'integration', brokers: [process.argv[2]], logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
});
const producer = kafka.producer({ allowAutoTopicCreation: false });
const admin = kafka.admin();

const bytes = (text) => (text === null || text === undefined ? null : Buffer.from(text, 'base64'));

const commands = {
  topic: async ({ topic, partitions, config }) => {
    await admin.createTopics({
      waitForLeaders: false,
      topics: [{
        topic, numPartitions: partitions, replicationFactor: 1,
        configEntries: Object.entries(config).map(([name, value]) => ({ name, value: String(value) })),
      }],
    });
    for (;;) { // the broker itself hears of it a little later than who answered that
      try {
        const { topics: [{ partitions: made }] } = await admin.fetchTopicMetadata({ topics: [topic] });
        if (made.length === partitions && made.every(({ leader }) => leader >= 0)) {
          return topic;
        }
      } catch (e) {
        if (!['UNKNOWN_TOPIC_OR_PARTITION', 'LEADER_NOT_AVAILABLE'].includes(e.type)) {
          throw e;
        }
      }
      await new Promise((resolve) => { setTimeout(resolve, 20); });
    }
  },
  drop: ({ topic }) => admin.deleteTopics({ topics: [topic] }),
  // Answers once all of it is on the broker.
  send: async ({ topic, messages }) => {
    await producer.send({
      topic, acks: -1,
      messages: messages.map(({ key, value, partition }) => (
        { key: bytes(key), value: bytes(value), partition: partition ?? undefined })),
    });
    return messages.length;
  },
  // n plays of so many users, keyed by user; user and item of the i-th are known by i.
  flood: async ({ topic, name, users, first, n }) => {
    for (let from = first; from < first + n; from += 10000) {
      const messages = Array.from({ length: Math.min(10000, first + n - from) }, (_, i) => {
        const user = `${name}:${(from + i) % users}`;
        return { key: user, value: `{"user":"${user}","item":"item:${from + i}"}` };
      });
      await producer.send({ topic, acks: -1, messages });
    }
    return n;
  },
  // Of each partition: the first offset, the end of its log.
  ends: async ({ topic }) => (await admin.fetchTopicOffsets(topic)).map(({ partition, low, high }) => (
    { partition, low: Number(low), high: Number(high) })),
  // What the broker was told by the group, by partition.
  committed: async ({ group, topic }) => (await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0]
    .partitions.map(({ partition, offset }) => ({ partition, offset: Number(offset) })),
  members: async ({ group }) => {
    const { groups: [{ state, members }] } = await admin.describeGroups([group]);
    return { state, members: members.length };
  },
};

await producer.connect();
await admin.connect();
console.log(JSON.stringify({ ok: 'connected' }));
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...rest } = JSON.parse(line);
  let answer;
  try {
    answer = { ok: (await commands[name](rest)) ?? null };
  } catch (error) {
    answer = { error: `${name}: ${error.message}` };
  }
  console.log(JSON.stringify(answer));
}
await producer.disconnect();
await admin.disconnect();
