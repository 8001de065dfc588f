// toolgate as the client that the conformance suite tests: the suite's server is registered with a fresh toolgate, and
// an agent lists and calls its tools through it.
//
//   client_under_test SERVER_URL
//
// The program is $PROGRAM_UNDER_TEST; the suite gives MCP_CONFORMANCE_SCENARIO, and some scenarios
// MCP_CONFORMANCE_CONTEXT. toolgate has ended when this does, so nothing of it keeps the suite's server busy.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { load } from './lib.mjs';

const operator = 'tg_op_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3XKEij';
const [serverUrl] = process.argv.slice(2);
const scenario = process.env.MCP_CONFORMANCE_SCENARIO;

/** Starts toolgate on `folder`; gives its URL and a way to end it. */
async function startGateway(folder) {
  const settings = {
    DATA_DIR: folder,
    SERVER__LISTEN: '127.0.0.1:0',
    SERVER__WORKERS: '1',
    METRICS__LISTEN: '127.0.0.1:0',
    EGRESS__ALLOW: '127.0.0.0/8,::1/128',
    EGRESS__DEFAULT_ALLOW: 'true',
    OPERATOR__TOKEN: operator
  };
  const env = Object.fromEntries(Object.entries(settings).map(([name, value]) => [`TOOLGATE_${name}`, value]));
  const child = spawn(process.env.PROGRAM_UNDER_TEST, ['serve'], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise((resolve) => child.on('exit', resolve));
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  for await (const line of createInterface({ input: child.stderr })) {
    if (!line.includes('toolgate is serving')) continue;
    child.stderr.resume();
    return { url: JSON.parse(line).url, stop };
  }
  throw new Error('toolgate did not start');
}

async function admin(url, key, body) {
  const headers = { 'content-type': 'application/json', 'x-auth': key };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** Registers the suite's server; gives an agent's way to it. */
async function register(gateway) {
  const org = await admin(`${gateway.url}/admin/v1/orgs`, operator, { slug: 'suite', name: 'suite' });
  const workspace = org.workspace_key;
  const endpoint = { name: 'suite', dialect: 'mcp', base_url: serverUrl, auth: {}, trusted: true };
  const registered = await admin(`${gateway.url}/v1/endpoints`, workspace, endpoint);
  if (registered.state !== 'connected') throw new Error(`not connected: ${JSON.stringify(registered)}`);
  const agent = await admin(`${gateway.url}/v1/agent-keys`, workspace, { name: 'agent', groups: ['default'] });
  return { url: `${gateway.url}/mcp`, key: agent.key };
}

const version = '2026-07-28';
let lastId = 0;

/** The tools as they were listed, by their names. */
const listed = new Map();

/** The headers in which a call's arguments stand once more, where the tool's schema says so. */
function mirrored({ name, arguments: args = {} }) {
  const encoded = (text) =>
    /^[!-~]([ -~]*[!-~])?$/.test(text) ? text : `=?base64?${Buffer.from(text, 'utf8').toString('base64')}?=`;
  const properties = Object.entries(listed.get(name)?.inputSchema.properties ?? {});
  const wanted = properties.filter(([property, schema]) => schema['x-mcp-header'] && property in args);
  return Object.fromEntries(
    wanted.map(([property, schema]) => [`mcp-param-${schema['x-mcp-header']}`, encoded(String(args[property]))])
  );
}

/** One request of a modern agent, which can be asked; gives the result or the error. */
async function ask({ url, key }, method, params = {}) {
  const _meta = {
    'io.modelcontextprotocol/protocolVersion': version,
    'io.modelcontextprotocol/clientCapabilities': { elicitation: {} },
    'io.modelcontextprotocol/clientInfo': { name: 'agent', version: '1' }
  };
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    authorization: `Bearer ${key}`,
    'mcp-protocol-version': version,
    'mcp-method': method,
    ...(params.name && { 'mcp-name': params.name, ...mirrored(params) })
  };
  const body = { jsonrpc: '2.0', id: (lastId += 1), method, params: { ...params, _meta } };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  const text = await answer.text();
  const isStream = answer.headers.get('content-type')?.startsWith('text/event-stream');
  const messages = isStream ? text.split('\n').filter((line) => line.startsWith('data: ')) : [`data: ${text}`];
  const last = JSON.parse(messages.at(-1).slice('data: '.length));
  return last.result ?? { error: last.error };
}

async function list(agent) {
  const { tools } = await ask(agent, 'tools/list');
  for (const tool of tools) listed.set(tool.name, tool);
  return tools;
}

/** Calls a tool, and says what came of it: the suite keeps what its client prints. */
async function call(agent, name, args = {}, more = {}) {
  const answer = await ask(agent, 'tools/call', { name, arguments: args, ...more });
  console.log(`${name}: ${JSON.stringify(answer)}`);
  return answer;
}

/** Arguments that a schema takes. */
function fitting(schema) {
  const value = { string: 'x', integer: 1, number: 1.5, boolean: true, array: [], object: {} };
  const properties = Object.entries(schema.properties ?? {});
  return Object.fromEntries(properties.map(([name, { type }]) => [name, value[type] ?? 'x']));
}

/** What an agent accepts that fills in a form's defaults. */
function defaults({ params }) {
  const fields = Object.entries(params.requestedSchema.properties);
  return { action: 'accept', content: Object.fromEntries(fields.map(([name, field]) => [name, field.default])) };
}

/** An agent of the era of `initialize`, which can be asked. */
async function callAsked({ url, key }, name) {
  const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
  const { ElicitRequestSchema } = load('@modelcontextprotocol/sdk/types.js');
  const client = new Client({ name: 'agent', version: '1' }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, defaults);
  const headers = { Authorization: `Bearer ${key}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  await client.callTool({ name });
  await client.close();
}

async function inRounds(agent) {
  const answers = (asked) =>
    Object.fromEntries(Object.keys(asked).map((name) => [name, { action: 'accept', content: { confirmed: true } }]));
  const again = (name, { inputRequests, requestState }) =>
    call(agent, name, {}, { inputResponses: answers(inputRequests), ...(requestState && { requestState }) });
  const first = await call(agent, 'test_mrtr_echo_state');
  await call(agent, 'test_mrtr_unrelated');
  await again('test_mrtr_echo_state', first);
  await again('test_mrtr_no_state', await call(agent, 'test_mrtr_no_state'));
  await call(agent, 'test_mrtr_no_result_type');
}

const steps = {
  tools_call: (agent) => call(agent, 'add_numbers', { a: 5, b: 3 }),
  'elicitation-sep1034-client-defaults': (agent) => callAsked(agent, 'test_client_elicitation_defaults'),
  'sse-retry': (agent) => call(agent, 'test_reconnection'),
  'sep-2322-client-request-state': inRounds,
  'http-standard-headers': async (agent) => {
    await call(agent, 'test_headers');
    await call(agent, 'my-hyphenated-tool');
  },
  'http-custom-headers': async (agent) => {
    for (const { name, arguments: args } of JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT).toolCalls) {
      // An optional argument that has no value is left out.
      await call(agent, name, Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null)));
    }
  },
  'http-invalid-tool-headers': async (agent, tools) => {
    for (const { name, inputSchema } of tools) await call(agent, name, fitting(inputSchema));
  },
  'json-schema-2020-12-preservation': (agent, tools) => {
    const { inputSchema } = tools.find(({ name }) => name === 'json_schema_2020_12_tool') ?? tools[0];
    return call(agent, 'json_schema_echo', { schema: inputSchema });
  }
};

const folder = mkdtempSync(path.join(tmpdir(), 'toolgate-client-'));
const gateway = await startGateway(folder);
try {
  const agent = await register(gateway);
  const tools = await list(agent);
  console.log(`${scenario}: ${JSON.stringify(tools.map(({ name }) => name))}`);
  await steps[scenario]?.(agent, tools);
} finally {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
}
