import Redis from 'ioredis';

const options = { port: process.env.PORT ?? 7979 };
const writing = new Redis({ ...options, commandTimeout: 5000 });
const asking = new Redis({ ...options, commandTimeout: 200 });

await writing.call('PLAYED', 'ioredis:u1', 'a');

const candidates = ['a', 'b', 'c']; // recalled
const unseen = await asking.call('FILTER', 'ioredis:u1', 'REPLY', 'INDEXES', 'ITEMS', ...candidates);

const bitmap = await asking.callBuffer('FILTER', 'ioredis:u1', 'REPLY', 'BITMAP', 'ITEMS', ...candidates);
const same = [...candidates.keys()].filter((i) => (bitmap[i >> 3] >> (7 - (i % 8))) & 1);
if (same.join() !== unseen.join()) throw new Error(`${same} is not ${unseen}`);

const ranked = unseen.map((i) => candidates[i]); // your ranking
const sent = ranked.slice(0, 1);
await writing.call('DELIVERED', 'ioredis:u1', ...sent);
console.log(...sent);
writing.disconnect();
asking.disconnect();
