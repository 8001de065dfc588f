// The TypeScript SDK v2 as a client; see common.mjs for the arguments.
import { load, packageVersion } from '../lib.mjs';
import { main, print, readArguments, user } from './common.mjs';

const { Client, StreamableHTTPClientTransport } = load('@modelcontextprotocol/client');

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
  const { url, key, call, elicit, progress, legacy } = readArguments('elicit', 'progress', 'legacy');
  const client = new Client(
    { name: 'ts-v2', version: '1.0.0' },
    {
      capabilities: elicit ? { elicitation: {} } : {},
      versionNegotiation: { mode: legacy ? 'legacy' : 'auto' }
    }
  );
  const { questions, answer } = user(elicit);
  if (elicit) client.setRequestHandler('elicitation/create', answer);
  const headers = { Authorization: `Bearer ${key}` };
  await client.connect(new StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  const tools = await listAll(client);
  const told = [];
  const options = progress ? { onprogress: (update) => told.push(update) } : {};
  const result = await client.callTool(call, options);
  print({
    client: 'ts_v2',
    version: packageVersion('@modelcontextprotocol/client'),
    protocol: client.getNegotiatedProtocolVersion(),
    tools,
    result,
    ...(elicit && { questions }),
    ...(progress && { progress: told })
  });
  await client.close();
});
