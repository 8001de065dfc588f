// What the clients on node share: their arguments, the answers of a willing user, and the one line they print.
import { parseArgs } from 'node:util';

const everyOption = {
  elicit: { type: 'string' },
  progress: { type: 'boolean', default: false },
  legacy: { type: 'boolean', default: false }
};

/**
 * Reads `URL KEY TOOL [ARGUMENTS] [--elicit accept|decline] [--progress] [--legacy]`. ARGUMENTS is a JSON object; left
 * out, the call is made without any. A client names the options it has; the others are mistakes.
 */
export function readArguments(...names) {
  const options = Object.fromEntries(names.map((name) => [name, everyOption[name]]));
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [url, key, tool, args] = positionals;
  if (!tool || positionals.length > 4) {
    throw new Error(`usage: URL KEY TOOL [ARGUMENTS] ${names.map((name) => `[--${name}]`).join(' ')}`);
  }
  if (values.elicit && !['accept', 'decline'].includes(values.elicit)) throw new Error('--elicit is accept or decline');
  return { ...values, url: new URL(url), key, call: { name: tool, ...(args && { arguments: JSON.parse(args) }) } };
}

/** What a user who agrees to everything would enter for one field. */
function entered(field) {
  if (field.default !== undefined) return field.default;
  if (field.enum) return field.enum[0];
  if (field.oneOf) return field.oneOf[0].const;
  switch (field.type) {
    case 'boolean':
      return true;
    case 'integer':
    case 'number':
      return field.minimum ?? 1;
    case 'array':
      return [field.items.enum?.[0] ?? field.items.anyOf[0].const];
    default:
      return 'entered';
  }
}

/** Gives the handler of questions, and the list in which it keeps them. */
export function user(action) {
  const questions = [];
  const answer = ({ params }) => {
    questions.push(params);
    if (action === 'decline') return { action };
    const fields = Object.entries(params.requestedSchema?.properties ?? {});
    return { action, content: Object.fromEntries(fields.map(([name, field]) => [name, entered(field)])) };
  };
  return { questions, answer };
}

/** Prints the outcome. */
export function print(outcome) {
  console.log(JSON.stringify(outcome));
}

/** Runs a client; what goes wrong is a line on stderr and a failure. */
export function main(run) {
  run().then(
    () => process.exit(0),
    (error) => {
      console.error(error?.stack ?? error);
      process.exit(1);
    }
  );
}
