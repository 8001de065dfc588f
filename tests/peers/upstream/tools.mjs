// The tools that answer without asking anything back.
import { setTimeout as sleep } from 'node:timers/promises';
import { load } from '../lib.mjs';

const { fromJsonSchema } = load('@modelcontextprotocol/server');

/** One red pixel. */
export const pixel =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
/** A WAV file of no samples. */
const silence = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';

export const text = (value) => ({ content: [{ type: 'text', text: value }] });

/** Registers a tool by plain JSON Schema; `run` gets its arguments (none: an empty object) and the call's context. */
export function tool(mcp, name, config, run) {
  const { inputSchema, outputSchema, ...rest } = config;
  const schemas = {
    ...(inputSchema && { inputSchema: fromJsonSchema(inputSchema) }),
    ...(outputSchema && { outputSchema: fromJsonSchema(outputSchema) })
  };
  return mcp.registerTool(name, { ...rest, ...schemas }, inputSchema ? run : (context) => run({}, context));
}

function addContent(mcp) {
  tool(mcp, 'test_simple_text', { description: 'Answers with a text', annotations: { readOnlyHint: true } }, () =>
    text('This is a simple text response for testing.')
  );
  tool(mcp, 'test_image_content', { description: 'Answers with an image' }, () => ({
    content: [{ type: 'image', data: pixel, mimeType: 'image/png' }]
  }));
  tool(mcp, 'test_audio_content', { description: 'Answers with a sound' }, () => ({
    content: [{ type: 'audio', data: silence, mimeType: 'audio/wav' }]
  }));
  tool(mcp, 'test_embedded_resource', { description: 'Answers with a resource' }, () => ({
    content: [
      {
        type: 'resource',
        resource: {
          uri: 'test://embedded-resource',
          mimeType: 'text/plain',
          text: 'This is an embedded resource content.'
        }
      }
    ]
  }));
  tool(mcp, 'test_multiple_content_types', { description: 'Answers with a text, an image and a resource' }, () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      { type: 'image', data: pixel, mimeType: 'image/png' },
      {
        type: 'resource',
        resource: {
          uri: 'test://mixed-content-resource',
          mimeType: 'application/json',
          text: '{"test":"data","value":123}'
        }
      }
    ]
  }));
  tool(mcp, 'test_error_handling', { description: 'Always fails' }, () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  const weather = {
    type: 'object',
    properties: { city: { type: 'string' }, celsius: { type: 'number' } },
    required: ['city', 'celsius']
  };
  tool(
    mcp,
    'test_structured_content',
    {
      title: 'Weather',
      description: 'Answers with structured content that its output schema describes',
      inputSchema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      outputSchema: weather,
      annotations: { readOnlyHint: true, openWorldHint: false }
    },
    ({ city }) => {
      const structuredContent = { city, celsius: 21.5 };
      return { content: [{ type: 'text', text: JSON.stringify(structuredContent) }], structuredContent };
    }
  );
}

function addSchemas(mcp) {
  tool(
    mcp,
    'json_schema_2020_12_tool',
    {
      description: 'Takes arguments described with the newer words of JSON Schema',
      inputSchema: {
        $schema: 'https://json-schema.org/draft/2020-12/schema',
        type: 'object',
        $defs: {
          address: {
            $anchor: 'addressDef',
            type: 'object',
            properties: { street: { type: 'string' }, city: { type: 'string' } }
          }
        },
        properties: {
          name: { type: 'string' },
          address: { $ref: '#/$defs/address' },
          contactMethod: { type: 'string', enum: ['phone', 'email'] },
          phone: { type: 'string' },
          email: { type: 'string' }
        },
        allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
        if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
        then: { required: ['phone'] },
        else: { required: ['email'] },
        additionalProperties: false
      }
    },
    (args) => text(JSON.stringify(args))
  );
  tool(
    mcp,
    'test_custom_header',
    {
      description: 'Wants one of its arguments in a header too',
      inputSchema: {
        type: 'object',
        properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, query: { type: 'string' } },
        required: ['region']
      }
    },
    (args) => text(JSON.stringify(args))
  );
}

function addTimed(mcp, { record, slowest }) {
  const log = async (context, message) => context.mcpReq.log('info', message);
  tool(mcp, 'test_tool_with_logging', { description: 'Logs while it runs' }, async (_, context) => {
    await log(context, 'Tool execution started');
    await sleep(50);
    await log(context, 'Tool processing data');
    await sleep(50);
    await log(context, 'Tool execution completed');
    return text('Logged three messages');
  });
  tool(mcp, 'test_logging_tool', { description: 'Logs when the request asks for it' }, async (_, context) => {
    await log(context, 'a message for those who set a level');
    return text('Logged when asked to');
  });
  tool(mcp, 'test_tool_with_progress', { description: 'Tells its progress' }, async (_, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (const progress of [0, 50, 100]) {
      if (progress > 0) await sleep(50);
      if (progressToken === undefined) continue;
      const params = { progressToken, progress, total: 100, message: `${progress} of 100` };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
    }
    return text('Progress told');
  });
  tool(mcp, 'test_reconnection', { description: 'Closes its stream before it answers' }, async (_, context) => {
    context.http?.closeSSE?.();
    await sleep(100);
    return text('Answered after the stream was closed');
  });
  tool(
    mcp,
    'greet',
    {
      description: 'Greets',
      inputSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
      annotations: { readOnlyHint: true }
    },
    ({ name }) => text(`Hello, ${name}!`)
  );
  tool(
    mcp,
    'slow_compute',
    {
      description: 'Takes its time; what became of the call is told by GET /__calls',
      inputSchema: { type: 'object', properties: { seconds: { type: 'number' } }, required: ['seconds'] }
    },
    async ({ seconds }, context) => {
      record.event({ tool: 'slow_compute', is: 'started' });
      try {
        await sleep(Math.min(seconds, slowest) * 1000, undefined, { signal: context.mcpReq.signal });
      } catch (error) {
        record.event({ tool: 'slow_compute', is: 'cancelled' });
        throw error;
      }
      record.event({ tool: 'slow_compute', is: 'finished' });
      return text(`Computed for ${seconds} s`);
    }
  );
}

/** Adds the tools; gives a function that brings the list in line with the shared state. */
export function addTools(mcp, shared) {
  addContent(mcp);
  addSchemas(mcp);
  addTimed(mcp, shared);
  const extra = tool(mcp, 'test_extra_tool', { description: 'Comes and goes' }, () => text('Here for now'));
  const follow = () => {
    if (extra.enabled !== shared.extraTool) extra[shared.extraTool ? 'enable' : 'disable']();
  };
  follow();
  tool(mcp, 'test_trigger_tool_change', { description: 'Adds test_extra_tool, or takes it away again' }, () => {
    shared.extraTool = !shared.extraTool;
    shared.toolsChanged();
    return text(`test_extra_tool is ${shared.extraTool ? 'there' : 'gone'}`);
  });
  tool(mcp, 'test_trigger_prompt_change', { description: 'Adds a prompt, or takes it away again' }, () => {
    shared.extraPrompt = !shared.extraPrompt;
    shared.promptsChanged();
    return text(`test_extra_prompt is ${shared.extraPrompt ? 'there' : 'gone'}`);
  });
  return follow;
}
