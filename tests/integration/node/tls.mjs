// grpc-js over TLS: node tls.mjs HOST:PORT FOLDER OF CERTIFICATES HOST:PORT
// The server at the second address has a certificate that has expired.
import { readFileSync } from 'node:fs';
import grpc from '@grpc/grpc-js';
import loader from '@grpc/proto-loader';

import { check, refused, same } from './checks.mjs';

const [address, folder, expired] = process.argv.slice(2);
const { Unseen } = grpc.loadPackageDefinition(loader.loadSync('unseen/v1/unseen.proto', {
  includeDirs: [process.env.UNSEEN_PROTO], enums: String,
})).unseen.v1;
const pem = (name) => readFileSync(`${folder}/${name}`);

async function ask({ at = address, ca = 'ca', certificate, name = 'localhost' }) {
  const own = certificate ? [pem(`${certificate}.key`), pem(`${certificate}.pem`)] : [];
  const unseen = new Unseen(at, grpc.credentials.createSsl(pem(`${ca}.pem`), ...own), {
    'grpc.ssl_target_name_override': name, 'grpc.default_authority': name,
  });
  try {
    return await new Promise((resolve, reject) => {
      unseen.Filter({ user: 'tls', items: ['a'], reply: 'INDEXES' }, { deadline: Date.now() + 60000 },
        (error, reply) => (error ? reject(error) : resolve(reply.indexes)));
    });
  } finally {
    unseen.close();
  }
}

const { UNAVAILABLE } = grpc.status;
const refusal = (text, how) => () => refused(UNAVAILABLE, text, () => ask(how));
await check("a client certificate", async () => same(await ask({ certificate: 'client' }), [0]));
await check("no client certificate", refusal(/./, {}));
await check("a client certificate of another authority", refusal(/./, { certificate: 'stranger' }));
await check("another authority", refusal(/unable to verify|self.signed|local issuer/, { ca: 'other', certificate: 'client' }));
await check("another name", refusal(/altnames/, { name: 'elsewhere.example', certificate: 'client' }));
await check("a certificate that has expired", refusal(/certificate has expired/, { at: expired }));
