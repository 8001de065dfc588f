// An MCP server of awkward answers, for comparing what an upstream says with what arrives through toolgate. It knows
// no SDK, because those put things in order: what goes out is text prepared in `awkward/cases.mjs`.
//
//   node awkward.mjs [--port 0] [--era modern|legacy|both]
//
// The first line of stdout is `listening <url>`. Beside the MCP endpoint:
//   GET /__cases      [{name, is, eras, delivery, arguments?: text}]: every tool, and what is to become of it
//   GET /__calls      what was received (see `lib.mjs`); DELETE forgets it
//   GET /__sessions   the legacy sessions; DELETE forgets them, as a restart would
// `tools/list` comes in pages of three, and the cursor of the second page is the empty string.
import { randomUUID } from 'node:crypto';
import { listen, parseJson, readBody, Record, sendJson, serverFlags } from './lib.mjs';
import { cases } from './awkward/cases.mjs';
import { deliveries } from './awkward/delivery.mjs';
import { rawMembers } from './awkward/raw.mjs';

const flags = serverFlags();
const record = new Record();
const sessions = new Set();
const modernVersion = '2026-07-28';
const legacyVersions = ['2025-11-25', '2025-06-18', '2025-03-26'];
const versionKey = 'io.modelcontextprotocol/protocolVersion';
const capabilitiesKey = 'io.modelcontextprotocol/clientCapabilities';
const pageSize = 3;
const serverInfo = '{"name":"awkward","title":"Äwkward","version":"0.0.1","xInfo":[]}';

const error = (id, code, message, data) =>
  `{"jsonrpc":"2.0","id":${id ?? 'null'},"error":${JSON.stringify({ code, message, data })}}`;
const answer = (id, result) => `{"jsonrpc":"2.0","id":${id},"result":${result}}`;

/** What is wrong with a modern request, as `[status, code, message, data]`. */
function fault(request, { method, params }) {
  const headers = request.headers;
  const version = params._meta[versionKey];
  if (headers['mcp-protocol-version'] !== version) return [400, -32020, 'MCP-Protocol-Version is not as in _meta'];
  if (version !== modernVersion) {
    return [400, -32022, 'Unsupported protocol version', { supported: [modernVersion], requested: version }];
  }
  if (params._meta[capabilitiesKey] === undefined) return [400, -32602, `_meta has no ${capabilitiesKey}`];
  if (headers['mcp-method'] !== method) return [400, -32020, 'Mcp-Method is not the method'];
  if (method !== 'tools/call') return undefined;
  const encoded = /^=\?base64\?(.*)\?=$/.exec(headers['mcp-name'] ?? '');
  const name = encoded ? Buffer.from(encoded[1], 'base64').toString('utf8') : headers['mcp-name'];
  return name === params.name ? undefined : [400, -32020, 'Mcp-Name is not the name'];
}

/** One page of the tools of an era. The cursor of page two is empty, of page n it is `page-n`. */
function toolsPage(era, cursor) {
  const listed = cases.filter(({ eras }) => eras.includes(era));
  const page = cursor === undefined ? 1 : cursor === '' ? 2 : Number(/^page-(\d+)$/.exec(cursor)?.[1]);
  if (!(page >= 1 && (page - 1) * pageSize < listed.length)) return undefined;
  const tools = listed.slice((page - 1) * pageSize, page * pageSize).map(({ declaration }) => declaration);
  const next = page * pageSize < listed.length ? `,"nextCursor":"${page === 1 ? '' : `page-${page + 1}`}"` : '';
  const hints = era === 'modern' ? '"resultType":"complete","ttlMs":60000,"cacheScope":"public",' : '';
  return `{${hints}"tools":[${tools.join(',')}]${next},"xList":[null]}`;
}

/** What comes before an answer: an unknown notification, and progress when it was asked for. */
function notifications(params) {
  const token = params._meta?.progressToken;
  const progress = (rest) =>
    `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":${JSON.stringify(token)},${rest}}}`;
  const unknown = '{"jsonrpc":"2.0","method":"notifications/x-acme","params":{"x":[]}}';
  if (token === undefined) return [unknown];
  return [unknown, progress('"progress":0.5,"total":1.0,"message":"grüße 🦀"'), progress('"progress":1')];
}

async function call(response, id, era, body, params) {
  const wanted = cases.find(({ name, eras }) => name === params.name && eras.includes(era));
  if (!wanted) {
    const status = era === 'modern' ? 400 : 200;
    return sendJson(response, status, error(id, -32602, `Unknown tool: ${params.name}`));
  }
  const deliver = (text) => deliveries[wanted.delivery](response, text, notifications(params));
  if (wanted.error) return deliver(`{"jsonrpc":"2.0","id":${id},"error":${wanted.error}}`);
  const { result } = wanted;
  const said = typeof result === 'function' ? result(rawMembers(rawMembers(body).get('params'))) : result;
  const typed = era === 'modern' && wanted.name !== 'no_result_type';
  return deliver(answer(id, typed ? `{"resultType":"complete",${said.slice(1)}` : said));
}

async function list(response, id, era, params) {
  const page = toolsPage(era, params.cursor);
  if (page) return sendJson(response, 200, answer(id, page));
  return sendJson(response, era === 'modern' ? 400 : 200, error(id, -32602, 'Unknown cursor'));
}

async function serveModern(request, response, message, body) {
  const { method, params } = message;
  const id = JSON.stringify(message.id);
  const wrong = fault(request, message);
  if (wrong) return sendJson(response, wrong[0], error(id, ...wrong.slice(1)));
  switch (method) {
    case 'server/discover': {
      const meta = `"_meta":{"io.modelcontextprotocol/serverInfo":${serverInfo}}`;
      const discovered = `"supportedVersions":["${modernVersion}"],"capabilities":{"tools":{},"xCapability":{}}`;
      const hints = '"resultType":"complete","ttlMs":0,"cacheScope":"private"';
      return sendJson(response, 200, answer(id, `{${hints},${discovered},${meta}}`));
    }
    case 'tools/list':
      return list(response, id, 'modern', params);
    case 'tools/call':
      return call(response, id, 'modern', body, params);
    default:
      return sendJson(response, 404, error(id, -32601, `Method not found: ${method}`));
  }
}

function initialize(response, id, params) {
  const version = legacyVersions.includes(params.protocolVersion) ? params.protocolVersion : legacyVersions[0];
  const session = randomUUID();
  sessions.add(session);
  const capabilities = '{"tools":{},"xCapability":{}}';
  const result = `{"protocolVersion":"${version}","capabilities":${capabilities},"serverInfo":${serverInfo}}`;
  return sendJson(response, 200, answer(id, result), { 'mcp-session-id': session });
}

async function serveLegacy(request, response, message, body) {
  const { method, params = {} } = message;
  const id = message.id === undefined ? undefined : JSON.stringify(message.id);
  if (method === 'initialize') return initialize(response, id, params);
  const session = request.headers['mcp-session-id'];
  // As old servers do that look at the method first: no status of an error, though there is no such method.
  if (method === 'server/discover') return sendJson(response, 200, error(id, -32601, 'Method not found'));
  if (session === undefined) return sendJson(response, 400, error(id, -32000, 'Bad Request: no session'));
  if (!sessions.has(session)) return sendJson(response, 404, error(id, -32001, 'Session not found'));
  if (id === undefined) return response.writeHead(202).end();
  switch (method) {
    case 'ping':
      return sendJson(response, 200, answer(id, '{}'));
    case 'tools/list':
      return list(response, id, 'legacy', params);
    case 'tools/call':
      return call(response, id, 'legacy', body, params);
    default:
      return sendJson(response, 200, error(id, -32601, `Method not found: ${method}`));
  }
}

function serveControl(request, response) {
  if (record.serve(request, response)) return true;
  if (request.url === '/__cases') {
    const told = cases.map(({ name, is, eras, delivery, args }) => ({ name, is, eras, delivery, arguments: args }));
    sendJson(response, 200, told);
    return true;
  }
  if (request.url !== '/__sessions') return false;
  if (request.method === 'DELETE') sessions.clear();
  sendJson(response, 200, [...sessions]);
  return true;
}

async function handle(request, response) {
  if (serveControl(request, response)) return undefined;
  const bytes = await readBody(request);
  record.request(request, bytes);
  if (request.method === 'DELETE') {
    return response.writeHead(sessions.delete(request.headers['mcp-session-id']) ? 200 : 404).end();
  }
  if (request.method !== 'POST') return response.writeHead(405, { allow: 'POST, DELETE' }).end();
  const message = parseJson(bytes);
  if (typeof message?.method !== 'string') return sendJson(response, 400, error(undefined, -32700, 'Parse error'));
  const body = bytes.toString('utf8');
  const isModern = message.params?._meta?.[versionKey] !== undefined;
  if (flags.era !== 'legacy' && isModern) return serveModern(request, response, message, body);
  if (flags.era !== 'modern') return serveLegacy(request, response, message, body);
  const refused = { supported: [modernVersion], requested: message.params?.protocolVersion ?? '' };
  return sendJson(response, 400, error(JSON.stringify(message.id), -32022, 'Unsupported protocol version', refused));
}

listen(handle, flags.port);
