// What the programs beside this share: a check that says how it ended, and three ways to expect something.
import assert from 'node:assert/strict';

export async function check(name, run) {
  const patience = setTimeout(() => { throw new Error(`${name}: no end after 120 s`); }, 120000);
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`not ok ${name}: ${String(error.stack).replaceAll('\n', ' ')}`);
  }
  clearTimeout(patience);
}

export function same(found, wanted) {
  assert.deepEqual(found, wanted);
}

export async function refused(code, text, call) {
  let reply;
  try {
    reply = await call();
  } catch (error) {
    assert.equal(error.code, code, String(error));
    assert.match(String(error.message), text);
    return;
  }
  assert.fail(`answered ${JSON.stringify(reply)}, and not refused with ${code}`);
}

export const candidates = Array.from({ length: 10000 }, (_, i) => `video:${String(i).padStart(19, '0')}`);
