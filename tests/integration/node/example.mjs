import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

const options = { includeDirs: [process.env.UNSEEN_PROTO ?? '/usr/share/unseen/proto'], enums: String };
const proto = grpc.loadPackageDefinition(loader.loadSync('unseen/v1/unseen.proto', options));
const unseen = new proto.unseen.v1.Unseen(process.env.UNSEEN ?? '127.0.0.1:7981', grpc.credentials.createInsecure());

function call(method, request, ms) {
  return new Promise((resolve, reject) => {
    const options = { deadline: Date.now() + ms };
    unseen[method](request, options, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

await call('Played', { user: 'grpc-js:u1', items: ['a'] }, 5000);

const candidates = ['a', 'b', 'c']; // recalled
const { indexes } = await call('Filter', { user: 'grpc-js:u1', items: candidates, reply: 'INDEXES' }, 200);
const ranked = indexes.map((i) => candidates[i]); // your ranking
const sent = ranked.slice(0, 1);
await call('Delivered', { user: 'grpc-js:u1', items: sent }, 5000);
console.log(...sent);
unseen.close();
