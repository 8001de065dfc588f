// The ways an answer travels: each takes the response, the answer's JSON text and what may come before it.
import { setTimeout as sleep } from 'node:timers/promises';

const json = { 'content-type': 'application/json' };
const stream = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };

const event = (text, end = '\n') => `event: message${end}data: ${text}${end}${end}`;

function whole(response, headers, body) {
  response.writeHead(200, headers);
  response.end(body);
}

/** Writes the bytes in pieces of `size`, each in a chunk of its own, so that characters are cut through. */
async function inPieces(response, headers, body, size) {
  const bytes = Buffer.from(body, 'utf8');
  response.writeHead(200, headers);
  response.flushHeaders();
  for (let at = 0; at < bytes.length; at += size) {
    response.write(bytes.subarray(at, at + size));
    // A turn of the loop between two writes keeps them two chunks.
    await sleep(0);
  }
  response.end();
}

/** One `data:` line for each line of the text, which is how SSE carries a line break. */
const dataLines = (text, end) =>
  text
    .split('\n')
    .map((line) => `data: ${line}${end}`)
    .join('');

/** The JSON, broken into lines between its tokens and not inside its strings. */
function onLines(text) {
  let inString = false;
  let out = '';
  for (let i = 0; i < text.length; i += 1) {
    const c = text[i];
    out += c;
    if (inString && c === '\\') out += text[(i += 1)];
    else if (c === '"') inString = !inString;
    else if (!inString && (c === ',' || c === '{')) out += '\n  ';
  }
  return out;
}

export const deliveries = {
  json: (response, text) => whole(response, json, text),
  json_charset: (response, text) => whole(response, { 'content-type': 'application/json; charset=utf-8' }, text),
  json_odd_type: (response, text) => whole(response, { 'content-type': 'Application/JSON ;Charset="UTF-8"' }, text),
  json_in_pieces: (response, text) => inPieces(response, json, text, 7),
  json_spaced: (response, text) => whole(response, json, `\r\n\t ${onLines(text)} \n`),
  sse: (response, text) => whole(response, stream, event(text)),
  sse_charset: (response, text) => whole(response, { 'content-type': 'text/event-stream; charset=utf-8' }, event(text)),
  sse_crlf: (response, text) => whole(response, stream, event(text, '\r\n')),
  sse_cr: (response, text) => whole(response, stream, event(text, '\r')),
  sse_no_event_field: (response, text) => whole(response, stream, `data: ${text}\n\n`),
  sse_no_space: (response, text) => whole(response, stream, `event:message\ndata:${text}\n\n`),
  sse_byte_order_mark: (response, text) => whole(response, stream, `\ufeff${event(text)}`),
  sse_comments: (response, text) =>
    whole(response, stream, `: hello\n\n:\nevent: message\n: in between\ndata: ${text}\n: after\n\n: bye\n\n`),
  sse_ids_and_retry: (response, text) =>
    whole(response, stream, `id: 1\nretry: 250\ndata: \n\nid: 2\nretry: soon\n${event(text)}`),
  sse_unknown_fields: (response, text) =>
    whole(response, stream, `event: ping\ndata: {}\n\nfoo: bar\nnocolon\nevent: message\ndata: ${text}\nfoo: bar\n\n`),
  sse_many_data_lines: (response, text) =>
    whole(response, stream, `event: message\n${dataLines(onLines(text), '\n')}\n`),
  sse_many_data_lines_crlf: (response, text) =>
    whole(response, stream, `event: message\r\n${dataLines(onLines(text), '\r\n')}\r\n`),
  sse_in_pieces: (response, text) => inPieces(response, stream, event(text), 5),
  sse_byte_by_byte_crlf: (response, text) => inPieces(response, stream, event(text, '\r\n'), 1),
  sse_notifications_first: (response, text, notifications) =>
    whole(response, stream, [...notifications, text].map((message) => event(message)).join('')),
  sse_notifications_apart: async (response, text, notifications) => {
    response.writeHead(200, stream);
    response.flushHeaders();
    for (const message of notifications) {
      response.write(event(message));
      await sleep(20);
    }
    response.end(event(text));
  },
  sse_held_open: (response, text) => {
    // The answer is there, and the stream's end is not needed to have it.
    response.writeHead(200, stream);
    response.write(event(text));
    const end = setTimeout(() => response.end(), 30_000);
    response.on('close', () => clearTimeout(end));
  }
};
