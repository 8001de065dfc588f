// Runs the official conformance suite for one revision and holds its outcome against a baseline.
//
//   conformance server REVISION --url URL --key KEY [--expected-failures FILE] [--output DIR]
//   conformance client REVISION --command COMMAND   [--expected-failures FILE] [--output DIR]
//
// `server` puts the shim before URL (the suite has no key to send) and runs all the revision asks of a server.
// `client` runs the revision's client scenarios that are not about OAuth: COMMAND gets the URL of the suite's server
// as its last argument, and the scenario's name in MCP_CONFORMANCE_SCENARIO. It is run once a scenario, one at a time.
//
// FILE is the suite's own format: a YAML map with a list `server` and a list `client`, each entry `scenario` or
// `scenario:check`. The last line is the summary. The exit code tells whether the outcome is what FILE says it is:
// a scored scenario that fails without standing there fails, and so does an entry that does not fail any more.
// (The suite can judge by such a file too, but passes over entries that name nothing it scores.)
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { load, peersDir } from './lib.mjs';
import { startShim } from './shim.mjs';

const yaml = load('yaml');
const suite = path.join(peersDir, 'npm', 'node_modules', '@modelcontextprotocol', 'conformance');

function usage(problem) {
  console.error(`conformance: ${problem}`);
  console.error('usage: conformance server REVISION --url URL --key KEY [--expected-failures FILE] [--output DIR]');
  console.error('       conformance client REVISION --command COMMAND [--expected-failures FILE] [--output DIR]');
  process.exit(2);
}

function readArguments() {
  const string = { type: 'string' };
  const options = { url: string, key: string, command: string, 'expected-failures': string, output: string };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const [leg, revision] = positionals;
  if (positionals.length !== 2 || !['server', 'client'].includes(leg)) usage('a leg and a revision are needed');
  if (leg === 'server' && !(values.url && values.key)) usage('the server leg needs --url and --key');
  if (leg === 'client' && !values.command) usage('the client leg needs --command');
  const output = values.output ?? mkdtempSync(path.join(tmpdir(), 'toolgate-conformance-'));
  mkdirSync(output, { recursive: true });
  return { ...values, leg, revision, output };
}

/** The scenarios of one leg: those that count, and those the suite only reports. */
function requirements(leg, revision) {
  const set = yaml.parse(readFileSync(path.join(suite, 'requirements', `${revision}.yaml`), 'utf8'));
  const wanted = (name) => leg === 'server' || !name.startsWith('auth/');
  const unscored = set.not_scored.filter((entry) => entry.leg === leg).map((entry) => entry.scenario);
  return { scored: set[leg].filter(wanted), unscored: unscored.filter(wanted) };
}

/** Runs the suite, its output into a file; gives its exit code. */
function run(args, log) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [path.join(suite, 'dist', 'index.js'), ...args]);
    const chunks = [];
    child.stdout.on('data', (chunk) => chunks.push(chunk));
    child.stderr.on('data', (chunk) => chunks.push(chunk));
    child.on('error', reject);
    child.on('close', (code) => {
      writeFileSync(log, Buffer.concat(chunks));
      resolve(code);
    });
  });
}

const failed = (check) => check.status === 'FAILURE' || check.status === 'WARNING';

/** The checks the suite wrote for a scenario; none when it could not be run. */
function readChecks(output, name) {
  const pattern = new RegExp(`^${name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')}-\\d{4}-\\d\\d-\\d\\dT[\\d-]+Z$`);
  const folder = readdirSync(output).findLast((entry) => pattern.test(entry));
  if (folder === undefined) return [];
  try {
    return JSON.parse(readFileSync(path.join(output, folder, 'checks.json'), 'utf8'));
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}

/** What a scenario came to: its failed checks, and the scenario itself under its own name when it did not run. */
function judge(scenario, checks, ran) {
  const failures = checks
    .filter(failed)
    .map(({ id, status, errorMessage, description }) => ({ id, status, why: errorMessage ?? description }));
  if (checks.length === 0) failures.push({ id: scenario, status: 'FAILURE', why: 'nothing was checked' });
  else if (!ran && failures.length === 0) failures.push({ id: scenario, status: 'FAILURE', why: 'the client failed' });
  return { scenario, failures };
}

async function runServer({ url, key, revision, output }, names) {
  const shim = await startShim({ target: url, key });
  const log = path.join(output, `server-${revision}.log`);
  await run(['server', '--requirements', revision, '--url', shim.url, '--output-dir', output], log);
  shim.close();
  return names.map((scenario) => judge(scenario, readChecks(output, `server-${scenario}`), true));
}

async function runClient({ command, revision, output }, names) {
  const outcomes = [];
  for (const scenario of names) {
    // What a revision asks for may have come before it or left since: `--force` runs it all the same.
    const args = ['client', '--scenario', scenario, '--command', command, '--spec-version', revision, '--force'];
    const log = path.join(output, `client-${revision}-${scenario}.log`);
    const code = await run([...args, '--output-dir', output], log);
    outcomes.push(judge(scenario, readChecks(output, scenario), code === 0));
  }
  return outcomes;
}

function readBaseline(file, leg) {
  if (!file) return [];
  return (yaml.parse(readFileSync(file, 'utf8'))?.[leg] ?? []).map((entry) => {
    const [scenario, check, ...rest] = String(entry).split(':');
    if (typeof entry !== 'string' || rest.length > 0) usage(`${file}: ${JSON.stringify(entry)} is no entry`);
    return { entry, scenario, check };
  });
}

/** What speaks against the baseline: failures that do not stand there, and entries that are not failures. */
function compare(outcomes, baseline) {
  const covers = ({ scenario, check }, outcome, failure) =>
    scenario === outcome.scenario && (check === undefined || check === failure.id);
  const unexpected = outcomes.flatMap((outcome) =>
    outcome.failures
      .filter((failure) => !baseline.some((entry) => covers(entry, outcome, failure)))
      .map((failure) => ({ scenario: outcome.scenario, ...failure }))
  );
  const stale = baseline.filter(
    (entry) => !outcomes.some((outcome) => outcome.failures.some((failure) => covers(entry, outcome, failure)))
  );
  return { unexpected, stale };
}

const flags = readArguments();
const { scored, unscored } = requirements(flags.leg, flags.revision);
const baseline = readBaseline(flags['expected-failures'], flags.leg);
const outcomes = await (flags.leg === 'server' ? runServer : runClient)(flags, [...scored, ...unscored]);
const counted = outcomes.slice(0, scored.length);
const reported = outcomes.slice(scored.length);
const { unexpected, stale } = compare(counted, baseline);

for (const { scenario, failures } of outcomes) {
  const mark = failures.length === 0 ? 'pass' : 'FAIL';
  console.log(`${mark} ${scenario}${scored.includes(scenario) ? '' : ' (not scored)'}`);
  for (const { id, status, why } of failures) console.log(`     ${status.toLowerCase()} ${id}: ${why}`);
}
for (const { scenario, id } of unexpected) console.log(`not in the baseline: ${scenario}:${id}`);
for (const { entry } of stale) console.log(`in the baseline, but no scored failure (any more): ${entry}`);
console.log(`results and logs: ${flags.output}`);
const passing = (list) => list.filter(({ failures }) => failures.length === 0).length;
console.log(
  `conformance ${flags.leg} ${flags.revision}: ${passing(counted)} of ${counted.length} scored scenarios pass ` +
    `(${passing(reported)} not scored pass of ${reported.length})`
);
process.exit(unexpected.length + stale.length > 0 ? 1 : 0);
