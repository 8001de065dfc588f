// The MCP server that stands behind toolgate in the conformance and client tests: the official TypeScript SDK's, both
// eras on one URL, with every tool, prompt and resource the conformance suite asks a server for.
//
//   node upstream.mjs [--port 0] [--era modern|legacy|both] [--response auto|sse|json] [--slowest SECONDS]
//
// `slow_compute` takes no longer than `--slowest`, whatever it is asked for.
// The first line of stdout is `listening <url>`. `GET /__calls` gives what was received (see `lib.mjs`).
import { randomUUID } from 'node:crypto';
import { listen, load, parseJson, readBody, Record, sendJson, serverFlags } from './lib.mjs';
import { buildServer } from './upstream/server.mjs';
import { EventStore } from './upstream/events.mjs';

const { createMcpHandler, isInitializeRequest, isLegacyRequest, WebStandardStreamableHTTPServerTransport } = load(
  '@modelcontextprotocol/server'
);
const { localhostHostValidation, localhostOriginValidation } = load('@modelcontextprotocol/node');

const string = { type: 'string' };
const flags = serverFlags({ response: { ...string, default: 'auto' }, slowest: { ...string, default: 'Infinity' } });
const largestBody = 32 * 1024 * 1024;
const record = new Record();
const hostIsLocal = localhostHostValidation();
const originIsLocal = localhostOriginValidation();

/** What all server instances share: there is one of them for each modern request and each legacy session. */
const shared = {
  record,
  slowest: Number(flags.slowest),
  extraTool: false,
  extraPrompt: false,
  sessions: new Map(),
  toolsChanged() {
    modern.notify.toolsChanged();
    for (const { built } of this.sessions.values()) built.followTools();
  },
  promptsChanged() {
    modern.notify.promptsChanged();
    for (const { built } of this.sessions.values()) built.followPrompts();
  }
};

const modern = createMcpHandler(() => buildServer(shared).mcp, {
  legacy: 'reject',
  responseMode: flags.response,
  maxRequestBodySize: largestBody,
  maxSubscriptions: 10_000
});

function refusal(status, code, message) {
  return Response.json({ jsonrpc: '2.0', id: null, error: { code, message } }, { status });
}

/** The initialize era: a session, with its own server, for each handshake. */
async function serveLegacy(request, body) {
  const id = request.headers.get('mcp-session-id');
  if (id !== null) {
    const session = shared.sessions.get(id);
    return session ? session.transport.handleRequest(request) : refusal(404, -32001, 'Session not found');
  }
  if (request.method !== 'POST' || !isInitializeRequest(parseJson(body))) {
    return refusal(400, -32000, 'Bad Request: no session, and this is no initialize');
  }
  const built = buildServer(shared);
  const transport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new EventStore(),
    retryInterval: 200,
    maxRequestBodySize: largestBody,
    onsessioninitialized: (session) => shared.sessions.set(session, { transport, built }),
    onsessionclosed: (session) => shared.sessions.delete(session)
  });
  await built.mcp.connect(transport);
  return transport.handleRequest(request);
}

async function respond(request, body) {
  if (flags.era === 'legacy') return serveLegacy(request, body);
  if (flags.era === 'both' && (await isLegacyRequest(request))) return serveLegacy(request, body);
  return modern.fetch(request);
}

/** Hands a web answer on as it is produced; a client that goes away ends it. */
async function send(answer, response) {
  response.writeHead(answer.status, Object.fromEntries(answer.headers));
  response.flushHeaders();
  if (!answer.body) return response.end();
  const reader = answer.body.getReader();
  response.on('close', () => reader.cancel().catch(() => {}));
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return response.end();
    response.write(value);
  }
}

async function handle(request, response) {
  if (record.serve(request, response)) return;
  const body = await readBody(request);
  record.request(request, body);
  if (!hostIsLocal(request, response) || !originIsLocal(request, response)) return;
  if (request.url === '/__sessions') {
    // Forgets every session, as a restart would.
    if (request.method === 'DELETE') shared.sessions.clear();
    return sendJson(response, 200, [...shared.sessions.keys()]);
  }
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  const web = new Request(`http://${request.headers.host}${request.url}`, {
    method: request.method,
    headers: request.headers,
    body: request.method === 'POST' ? body : undefined,
    signal: gone.signal
  });
  let answer;
  try {
    answer = await respond(web, body);
  } catch (error) {
    // The SDK ends an exchange that way when its client went away.
    if (gone.signal.aborted) return;
    throw error;
  }
  await send(answer, response);
}

listen(handle, flags.port);
