// Idle clients by the thousand: each opens a `subscriptions/listen` stream and waits to be told that the tools changed.
//
//   node listeners.mjs --url URL --key KEY --streams N
//
// Prints `acknowledged` when every stream is, `told` when each was told of a change, and then, when stdin ends,
// `{"acknowledged":N,"told":N,"ended":0}`: what came in all.
import { request } from 'node:http';
import { parseArgs } from 'node:util';

const string = { type: 'string' };
const { url, key, streams } = parseArgs({ options: { url: string, key: string, streams: string } }).values;
const wanted = Number(streams);
const count = { acknowledged: 0, told: 0, ended: 0 };
const atOnce = 50;

const version = '2026-07-28';
const meta = {
  'io.modelcontextprotocol/protocolVersion': version,
  'io.modelcontextprotocol/clientCapabilities': {}
};
const params = { notifications: { toolsListChanged: true }, _meta: meta };
const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'subscriptions/listen', params });
const headers = {
  'content-type': 'application/json',
  'content-length': Buffer.byteLength(body),
  accept: 'application/json, text/event-stream',
  authorization: `Bearer ${key}`,
  'mcp-protocol-version': version,
  'mcp-method': 'subscriptions/listen'
};

function hear({ method }) {
  const what = {
    'notifications/subscriptions/acknowledged': 'acknowledged',
    'notifications/tools/list_changed': 'told'
  }[method];
  if (!what) throw new Error(`${method} was not asked for`);
  count[what] += 1;
  if (count[what] === wanted) console.log(what);
}

/** Opens one stream; resolves when something came on it. */
const open = () =>
  new Promise((resolve, reject) => {
    const sent = request(url, { method: 'POST', agent: false, headers });
    sent.on('error', reject);
    sent.on('response', (answer) => {
      if (answer.statusCode !== 200) return reject(new Error(`${answer.statusCode}`));
      let rest = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk) => {
        const events = (rest + chunk).split('\n\n');
        rest = events.pop();
        for (const event of events) {
          const data = event.split('\n').find((line) => line.startsWith('data: '));
          if (data) hear(JSON.parse(data.slice('data: '.length)));
        }
        resolve();
      });
      answer.on('close', () => (count.ended += 1));
    });
    sent.end(body);
  });

process.stdin.resume().on('end', () => {
  console.log(JSON.stringify(count));
  process.exit(0);
});
let opened = 0;
await Promise.all(
  Array.from({ length: atOnce }, async () => {
    while (opened < wanted) {
      opened += 1;
      await open();
    }
  })
);
