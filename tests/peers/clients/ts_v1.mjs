// The TypeScript SDK v1 as a client; see common.mjs for the arguments. It only knows the era of `initialize`.
import { load, packageVersion } from '../lib.mjs';
import { main, print, readArguments, user } from './common.mjs';

const { Client } = load('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = load('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { CompatibilityCallToolResultSchema, ElicitRequestSchema } = load('@modelcontextprotocol/sdk/types.js');

async function listAll(client) {
  const names = [];
  let cursor;
  do {
    const page = await client.listTools(cursor === undefined ? undefined : { cursor });
    names.push(...page.tools.map(({ name }) => name));
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return names;
}

main(async () => {
  const { url, key, call, elicit, progress } = readArguments('elicit', 'progress');
  const capabilities = elicit ? { elicitation: {} } : {};
  const client = new Client({ name: 'ts-v1', version: '1.0.0' }, { capabilities });
  const { questions, answer } = user(elicit);
  if (elicit) client.setRequestHandler(ElicitRequestSchema, answer);
  const headers = { Authorization: `Bearer ${key}` };
  const transport = new StreamableHTTPClientTransport(url, { requestInit: { headers } });
  await client.connect(transport);
  const tools = await listAll(client);
  const told = [];
  const options = progress ? { onprogress: (update) => told.push(update) } : {};
  const result = await client.callTool(call, CompatibilityCallToolResultSchema, options);
  print({
    client: 'ts_v1',
    version: packageVersion('@modelcontextprotocol/sdk'),
    protocol: transport.protocolVersion,
    tools,
    result,
    ...(elicit && { questions }),
    ...(progress && { progress: told })
  });
  await client.close();
});
