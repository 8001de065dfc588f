// One server instance, with all it has to give.
import { load } from '../lib.mjs';
import { addLibrary } from './library.mjs';
import { addQuestions, stateCodec } from './questions.mjs';
import { addTools } from './tools.mjs';

const { McpServer } = load('@modelcontextprotocol/server');

/**
 * Builds a server. `followTools` and `followPrompts` bring its lists in line with the shared state, for instances that
 * outlive a change of it.
 */
export function buildServer(shared) {
  const mcp = new McpServer(
    { name: 'toolgate-test-upstream', version: '1.0.0' },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { subscribe: true, listChanged: true },
        completions: {},
        logging: {}
      },
      instructions: 'A server for tests.',
      cacheHints: { 'tools/list': { ttlMs: 1000, cacheScope: 'public' } },
      requestState: { verify: stateCodec.verify }
    }
  );
  const followTools = addTools(mcp, shared);
  addQuestions(mcp);
  const followPrompts = addLibrary(mcp, shared);
  return { mcp, followTools, followPrompts };
}
