// What the peers share: where their packages are, their flags, raw bodies, and the record of what a server received.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { parseArgs } from 'node:util';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));

/** The folder that `tests/peers/install` filled. */
export const peersDir = path.resolve(process.env.MCP_PEERS || path.join(here, '..', '..', 'target', 'peers'));

/** Loads a package that `tests/peers/install` brought: they do not lie above this file, where `import` would look. */
export const load = createRequire(path.join(peersDir, 'npm', 'package.json'));

/** The version of such a package. Read from its file, since not every package exports it. */
export function packageVersion(name) {
  return JSON.parse(readFileSync(path.join(peersDir, 'npm', 'node_modules', name, 'package.json'), 'utf8')).version;
}

/**
 * Reads what every upstream takes: `--port` (0: a free one), `--era` (modern, legacy or both), and
 * `--until-stdin-ends` (so that it does not outlive a starter which was killed).
 */
export function serverFlags(more = {}) {
  const options = {
    port: { type: 'string', default: '0' },
    era: { type: 'string', default: 'both' },
    'until-stdin-ends': { type: 'boolean', default: false },
    ...more
  };
  const { values } = parseArgs({ options });
  if (!['modern', 'legacy', 'both'].includes(values.era)) throw new Error('--era is modern, legacy or both');
  if (values['until-stdin-ends']) process.stdin.resume().on('end', () => process.exit(0));
  return { ...values, port: Number(values.port) };
}

/** Collects a request's body as it came. */
export async function readBody(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** Gives the JSON of a body, or nothing when it is none. */
export function parseJson(body) {
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    return undefined;
  }
}

/** A finished answer of JSON. */
export function sendJson(response, status, value, headers = {}) {
  const body = typeof value === 'string' || Buffer.isBuffer(value) ? value : JSON.stringify(value);
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body);
}

/**
 * What a server received, for tests to look at: `GET /__calls` gives it, `DELETE /__calls` forgets it. An entry is
 * `{kind: "request", method, path, headers: [[name, value]…], body}` with names in the case and order they had, or
 * `{kind: "event", …}` for what a tool saw.
 */
export class Record {
  entries = [];

  request(request, body) {
    const headers = [];
    for (let i = 0; i < request.rawHeaders.length; i += 2) headers.push(request.rawHeaders.slice(i, i + 2));
    const text = body.toString('utf8');
    const entry = { kind: 'request', method: request.method, path: request.url, headers, body: text };
    if (!Buffer.from(text, 'utf8').equals(body)) entry.base64 = body.toString('base64');
    this.entries.push(entry);
  }

  event(event) {
    this.entries.push({ kind: 'event', ...event });
  }

  /** Answers for `/__calls`; tells whether the request was for it. */
  serve(request, response) {
    if (request.url !== '/__calls') return false;
    if (request.method === 'DELETE') this.entries = [];
    sendJson(response, 200, this.entries);
    return true;
  }
}

/** Listens on loopback and says where on the first line of stdout. */
export function listen(handler, port) {
  const server = createServer((request, response) => {
    handler(request, response).catch((error) => {
      console.error(error);
      if (!response.headersSent) sendJson(response, 500, { error: String(error) });
      else response.destroy();
    });
  });
  // A test may keep an idle connection for long; none of them is about this server's timeouts.
  Object.assign(server, { keepAliveTimeout: 0, headersTimeout: 0, requestTimeout: 0 });
  server.listen(port, '127.0.0.1', () => console.log(`listening http://127.0.0.1:${server.address().port}/mcp`));
  return server;
}
