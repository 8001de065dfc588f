// Runs the Inspector's CLI twice, to list and to call, and puts together what it printed.
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { packageVersion, peersDir } from '../lib.mjs';
import { main, print, readArguments } from './common.mjs';

const run = promisify(execFile);
const folder = path.join(peersDir, 'npm/node_modules/@modelcontextprotocol/inspector');

main(async () => {
  const { url, key, call, legacy } = readArguments('legacy');
  // It keeps a catalogue of servers in the home folder, which is not a test's to touch.
  const home = mkdtempSync(path.join(tmpdir(), 'toolgate-inspector-'));
  const inspect = async (...args) => {
    const entry = path.join(folder, 'clients/launcher/build/index.js');
    const to = ['--server-url', url.href, '--transport', 'http', '--header', `Authorization: Bearer ${key}`];
    const era = ['--protocol-era', legacy ? 'legacy' : 'auto', '--format', 'json', '--quiet'];
    const options = { env: { ...process.env, HOME: home }, maxBuffer: 64 * 1024 * 1024 };
    const { stdout } = await run(process.execPath, [entry, '--cli', ...to, ...era, ...args], options);
    return JSON.parse(stdout).result;
  };
  try {
    const { tools } = await inspect('--method', 'tools/list');
    const args = call.arguments ? ['--tool-args-json', JSON.stringify(call.arguments)] : [];
    const result = await inspect('--method', 'tools/call', '--tool-name', call.name, ...args);
    print({
      client: 'inspector',
      version: packageVersion('@modelcontextprotocol/inspector'),
      // Its output does not tell which version was agreed on.
      protocol: null,
      tools: tools.map(({ name }) => name),
      result
    });
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
