// Prompts, resources and completion: toolgate does not hand them through, but the suite shows with them that this
// server is sound.
import { load } from '../lib.mjs';
import { pixel } from './tools.mjs';

const { acceptedContent, fromJsonSchema, inputRequired, ResourceTemplate } = load('@modelcontextprotocol/server');

const user = (content) => ({ role: 'user', content });
const says = (text) => user({ type: 'text', text });

function addPrompts(mcp, shared) {
  const argument = (names) => ({
    argsSchema: fromJsonSchema({
      type: 'object',
      properties: Object.fromEntries(names.map((name) => [name, { type: 'string', description: `the ${name}` }])),
      required: names
    })
  });
  mcp.registerPrompt('test_simple_prompt', { description: 'Says one thing' }, () => ({
    messages: [says('This is a simple prompt for testing.')]
  }));
  mcp.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'Says its arguments', ...argument(['arg1', 'arg2']) },
    ({ arg1, arg2 }) => ({ messages: [says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)] })
  );
  mcp.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'Shows a resource', ...argument(['resourceUri']) },
    ({ resourceUri: uri }) => {
      const resource = { uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' };
      return { messages: [user({ type: 'resource', resource }), says('Please process the embedded resource above.')] };
    }
  );
  mcp.registerPrompt('test_prompt_with_image', { description: 'Shows an image' }, () => ({
    messages: [
      user({ type: 'image', data: pixel, mimeType: 'image/png' }),
      says('Please analyze the image above.')
    ]
  }));
  mcp.registerPrompt('test_input_required_result_prompt', { description: 'Asks for its context' }, (context) => {
    const answered = acceptedContent(context.mcpReq.inputResponses, 'user_context');
    if (answered) return { messages: [says(`In the context of ${answered.context}`)] };
    const user_context = inputRequired.elicit({
      message: 'What context should the prompt use?',
      requestedSchema: { type: 'object', properties: { context: { type: 'string' } }, required: ['context'] }
    });
    return inputRequired({ inputRequests: { user_context } });
  });
  const extra = mcp.registerPrompt('test_extra_prompt', { description: 'Comes and goes' }, () => ({
    messages: [says('Here for now')]
  }));
  const follow = () => {
    if (extra.enabled !== shared.extraPrompt) extra[shared.extraPrompt ? 'enable' : 'disable']();
  };
  follow();
  return follow;
}

function addResources(mcp) {
  const fixed = (name, uri, mimeType, content) =>
    mcp.registerResource(name, uri, { description: `The ${name}`, mimeType }, () => ({
      contents: [{ uri, mimeType, ...content }]
    }));
  fixed('static text', 'test://static-text', 'text/plain', {
    text: 'This is the content of the static text resource.'
  });
  fixed('static binary', 'test://static-binary', 'image/png', { blob: pixel });
  fixed('watched resource', 'test://watched-resource', 'text/plain', { text: 'Watch me.' });
  mcp.registerResource(
    'template',
    new ResourceTemplate('test://template/{id}/data', { list: undefined }),
    { description: 'Data by its id', mimeType: 'application/json' },
    (uri, { id }) => {
      const text = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
      return { contents: [{ uri: uri.href, mimeType: 'application/json', text }] };
    }
  );
  mcp.server.setRequestHandler('resources/subscribe', () => ({}));
  mcp.server.setRequestHandler('resources/unsubscribe', () => ({}));
}

/** Adds them; gives a function that brings the list of prompts in line with the shared state. */
export function addLibrary(mcp, shared) {
  addResources(mcp);
  mcp.server.setRequestHandler('completion/complete', ({ params }) => {
    const values = ['paris', 'park', 'party'].filter((word) => word.startsWith(params.argument.value));
    return { completion: { values, total: values.length, hasMore: false } };
  });
  return addPrompts(mcp, shared);
}
