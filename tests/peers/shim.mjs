// A reverse proxy that adds a key to every request, for clients which cannot send one (the conformance suite). All the
// rest goes through as it came, either way: headers with their case and order, `Host` and `Origin`, streams, aborts.
//
//   node shim.mjs --target URL --key KEY [--port 0]      first line of stdout: `listening <url>`
import { createServer, request as send } from 'node:http';
import { parseArgs } from 'node:util';
import { pathToFileURL } from 'node:url';

const hopByHop = new Set(['connection', 'keep-alive', 'proxy-connection', 'transfer-encoding', 'upgrade', 'te']);

function passedOn(rawHeaders) {
  const kept = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (!hopByHop.has(rawHeaders[i].toLowerCase())) kept.push(rawHeaders[i], rawHeaders[i + 1]);
  }
  return kept;
}

/** Starts it on a free loopback port (or `port`); gives its URL, with the target's path, and a way to end it. */
export function startShim({ target, key, port = 0 }) {
  const to = new URL(target);
  const server = createServer((request, response) => {
    const onward = send({
      host: to.hostname,
      port: to.port || 80,
      method: request.method,
      path: request.url,
      headers: [...passedOn(request.rawHeaders), 'Authorization', `Bearer ${key}`],
      setHost: false
    });
    onward.on('response', (answer) => {
      response.writeHead(answer.statusCode, passedOn(answer.rawHeaders));
      response.flushHeaders();
      answer.on('error', () => response.destroy());
      answer.pipe(response);
    });
    onward.on('error', (error) => {
      if (response.headersSent) return response.destroy();
      response.writeHead(502, { 'content-type': 'text/plain' });
      response.end(`the shim could not reach ${to.host}: ${error.message}\n`);
    });
    response.on('close', () => onward.destroy());
    request.pipe(onward);
  });
  Object.assign(server, { keepAliveTimeout: 0, headersTimeout: 0, requestTimeout: 0 });
  return new Promise((resolve) => {
    server.listen(port, '127.0.0.1', () => {
      const url = `http://127.0.0.1:${server.address().port}${to.pathname}`;
      resolve({
        url,
        close() {
          server.close();
          server.closeAllConnections();
        }
      });
    });
  });
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const options = { target: { type: 'string' }, key: { type: 'string' }, port: { type: 'string', default: '0' } };
  const { target, key, port } = parseArgs({ options }).values;
  if (!target || !key) throw new Error('usage: shim.mjs --target URL --key KEY [--port N]');
  const { url } = await startShim({ target, key, port: Number(port) });
  console.log(`listening ${url}`);
}
