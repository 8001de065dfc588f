// The tools that ask something back: of the user (elicitation), of the model (sampling), or for the client's roots.
// Each is written once. The SDK turns what they return into an `input_required` result for a modern client, and into
// requests on the call's own stream for a legacy one.
import { load } from '../lib.mjs';
import { text, tool } from './tools.mjs';

const { acceptedContent, createRequestStateCodec, inputRequired, inputResponse } = load('@modelcontextprotocol/server');

/** Signs the states that travel through the client. One key for all instances: any of them may get the next round. */
export const stateCodec = createRequestStateCodec({ key: new Uint8Array(32).fill(7), ttlSeconds: 600 });

const form = (message, properties, required = Object.keys(properties)) =>
  inputRequired.elicit({ message, requestedSchema: { type: 'object', properties, required } });

const ask = (content, maxTokens) =>
  inputRequired.createMessage({ messages: [{ role: 'user', content: { type: 'text', text: content } }], maxTokens });

/** Asks one thing under `key` and answers by what came back. */
function oneQuestion(mcp, name, config, key, question, answer) {
  tool(mcp, name, config, (args, context) => {
    const view = inputResponse(context.mcpReq.inputResponses, key);
    if (view.kind === 'missing') return inputRequired({ inputRequests: { [key]: question(args) } });
    return text(answer(view, args));
  });
}

const outcome = ({ action, content }) => `action=${action}, content=${JSON.stringify(content ?? {})}`;
const said = ({ result }) => [result.content].flat().map((block) => block.text).join('');

const everyDefault = {
  name: { type: 'string', default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { type: 'string', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true }
};

const titled = (...titles) => titles.map((title, i) => ({ const: `value${i + 1}`, title }));
const everyEnum = {
  untitledSingle: { type: 'string', enum: ['option1', 'option2', 'option3'] },
  titledSingle: { type: 'string', oneOf: titled('First Option', 'Second Option', 'Third Option') },
  legacyEnum: {
    type: 'string',
    enum: ['opt1', 'opt2', 'opt3'],
    enumNames: ['Option One', 'Option Two', 'Option Three']
  },
  untitledMulti: { type: 'array', items: { type: 'string', enum: ['option1', 'option2', 'option3'] } },
  titledMulti: { type: 'array', items: { anyOf: titled('First Choice', 'Second Choice', 'Third Choice') } }
};

function addPlain(mcp) {
  const takes = (name) => ({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] });
  const prompt = { description: 'Asks the model', inputSchema: takes('prompt') };
  const question = { prompt: (args) => ask(args.prompt, 100) };
  oneQuestion(mcp, 'test_sampling', prompt, 'prompt', question.prompt, (view) => `LLM response: ${said(view)}`);
  oneQuestion(
    mcp,
    'test_elicitation',
    { description: 'Asks the user for a name and an address', inputSchema: takes('message') },
    'user',
    ({ message }) =>
      form(message, {
        username: { type: 'string', description: "User's response" },
        email: { type: 'string', description: "User's email address" }
      }),
    (view) => `User response: ${outcome(view)}`
  );
  oneQuestion(
    mcp,
    'test_elicitation_sep1034_defaults',
    { description: 'Asks the user with a default for every type' },
    'defaults',
    () => form('Please review and update the form fields with defaults', everyDefault, []),
    (view) => `Elicitation completed: ${outcome(view)}`
  );
  oneQuestion(
    mcp,
    'test_elicitation_sep1330_enums',
    { description: 'Asks the user with every kind of choice' },
    'enums',
    () => form('Please select options from the enum fields', everyEnum, []),
    (view) => `Elicitation completed: ${outcome(view)}`
  );
  oneQuestion(
    mcp,
    'test_streaming_elicitation',
    { description: 'Asks the user, where a stream might have been used' },
    'confirm',
    () => form('Go on?', { ok: { type: 'boolean' } }),
    (view) => `Elicitation completed: ${outcome(view)}`
  );
  const sampling = { description: 'Needs sampling, and is refused to who has none' };
  oneQuestion(mcp, 'test_missing_capability', sampling, 'sample', () => ask('Anything?', 10), said);
}

function addRounds(mcp) {
  const named = (suffix) => `test_input_required_result_${suffix}`;
  const name = { name: { type: 'string' } };
  oneQuestion(
    mcp,
    named('elicitation'),
    { description: 'Asks for a name' },
    'user_name',
    () => form('What is your name?', name),
    (view) => `Hello, ${view.content?.name ?? view.action}!`
  );
  const sampling = { description: 'Asks the model' };
  const capital = () => ask('What is the capital of France?', 100);
  oneQuestion(mcp, named('sampling'), sampling, 'capital_question', capital, said);
  oneQuestion(
    mcp,
    named('list_roots'),
    { description: 'Asks for the roots' },
    'client_roots',
    () => inputRequired.listRoots(),
    ({ roots }) => `Roots: ${roots.map(({ uri }) => uri).join(', ')}`
  );
  const confirm = () => form('Please confirm', { ok: { type: 'boolean' } });
  for (const suffix of ['request_state', 'tampered_state']) {
    tool(mcp, named(suffix), { description: 'Asks, and wants its state back' }, async (_, context) => {
      const answered = acceptedContent(context.mcpReq.inputResponses, 'confirm');
      if (answered && context.mcpReq.requestState()?.tool === suffix) return text('state-ok');
      const requestState = await stateCodec.mint({ tool: suffix });
      return inputRequired({ inputRequests: { confirm: confirm() }, requestState });
    });
  }
  tool(mcp, named('multiple_inputs'), { description: 'Asks three things at once' }, async (_, context) => {
    const all = {
      user_name: form('What is your name?', name),
      greeting: ask('Generate a greeting', 50),
      client_roots: inputRequired.listRoots()
    };
    const views = Object.keys(all).map((key) => inputResponse(context.mcpReq.inputResponses, key));
    if (views.every(({ kind }) => kind !== 'missing')) return text(`Got ${JSON.stringify(views)}`);
    return inputRequired({ inputRequests: all, requestState: await stateCodec.mint({ tool: 'multiple_inputs' }) });
  });
  tool(mcp, named('multi_round'), { description: 'Asks twice' }, async (_, context) => {
    const { inputResponses } = context.mcpReq;
    const state = context.mcpReq.requestState();
    const color = acceptedContent(inputResponses, 'step2');
    if (color && state?.name) return text(`${state.name} likes ${color.color}`);
    const first = acceptedContent(inputResponses, 'step1');
    if (first && state?.round === 1) {
      const step2 = form('Step 2: What is your favorite color?', { color: { type: 'string' } });
      return inputRequired({
        inputRequests: { step2 },
        requestState: await stateCodec.mint({ round: 2, name: first.name })
      });
    }
    const step1 = form('Step 1: What is your name?', name);
    return inputRequired({ inputRequests: { step1 }, requestState: await stateCodec.mint({ round: 1 }) });
  });
  tool(mcp, named('capabilities'), { description: 'Asks only what the client can answer' }, (_, context) => {
    const envelope = context.mcpReq.envelope?.['io.modelcontextprotocol/clientCapabilities'];
    const can = envelope ?? mcp.server.getClientCapabilities() ?? {};
    const answered = Object.keys(context.mcpReq.inputResponses ?? {});
    if (answered.length > 0) return text(`Got ${answered.join(', ')}`);
    const inputRequests = {
      ...(can.elicitation && { user_name: form('What is your name?', name) }),
      ...(can.sampling && { capital_question: capital() })
    };
    return Object.keys(inputRequests).length > 0 ? inputRequired({ inputRequests }) : text('Nobody to ask');
  });
}

/** Adds the tools that ask. */
export function addQuestions(mcp) {
  addPlain(mcp);
  addRounds(mcp);
}
