// The tools, as texts: what stands here goes out byte for byte, so nothing is built with JSON.stringify that could
// come out otherwise. `String.raw` keeps the escapes of JSON what they are.
import { deliveries } from './delivery.mjs';

const raw = String.raw;
const anyObject = '{"type":"object"}';

/**
 * What is to become of a tool behind a gateway:
 * - `relayed`: its result arrives as it is;
 * - `hard`: its result is JSON, yet not what every reader takes (RFC 8259, sections 4, 6, 8.2): relayed as it is or
 *   refused, but never changed;
 * - `fails`: it is answered with a JSON-RPC error, or with a result that breaks the tool's own output schema;
 * - `refused`: its declaration cannot be taken.
 */
function entry(name, is, result, more = {}) {
  const { declaration = `"inputSchema":${anyObject}`, eras = ['modern', 'legacy'], delivery = 'json', args } = more;
  return {
    name,
    is,
    eras,
    args,
    delivery,
    result,
    declaration: raw`{"name":${JSON.stringify(name)},"description":"${more.description ?? name}",${declaration}}`
  };
}

const relayed = (name, result, more) => entry(name, 'relayed', result, more);
const hard = (name, result, more) => entry(name, 'hard', result, more);
const text = (value) => `{"content":[{"type":"text","text":"${value}"}]}`;
const structured = (value) => `{"content":[{"type":"text","text":"see the structure"}],"structuredContent":${value}}`;

const results = [
  relayed(
    'unknown_content_types',
    [
      raw`{"content":[{"type":"hologram","voxels":[[0,1],[]],"depth":{"z":1}},{"type":"text","text":"known"},`,
      raw`{"type":"x-acme/thing","payload":null},{"type":"resource","resource":{"uri":"acme://1",`,
      raw`"brandNew":{"a":[]}}}]}`
    ].join('')
  ),
  relayed(
    'unknown_members',
    [
      raw`{"xResult":{"deep":[1,{"x":null}]},"content":[{"type":"text","text":"t","xBlock":true,`,
      raw`"annotations":{"audience":["user","x-robot"],"priority":0.5,"lastModified":"2025-01-12T15:00:58Z",`,
      raw`"xAnnotation":[]},"_meta":{"acme.example/x":{"y":null},"plain":1}}],`,
      raw`"_meta":{"acme.example/result":[null,false,""],"xMeta":{}},"isError":false}`
    ].join('')
  ),
  relayed('empty_content', raw`{"content":[]}`),
  relayed(
    'empty_values',
    [
      raw`{"content":[{"type":"text","text":"","annotations":{},"_meta":{}},{"type":"image","data":"",`,
      raw`"mimeType":""}],"structuredContent":{"array":[],"object":{},"string":"","null":null,"nested":[[],{},`,
      raw`[[]]]},"_meta":{}}`
    ].join('')
  ),
  relayed('empty_structure', raw`{"content":[],"structuredContent":{}}`),
  relayed(
    'resource_links',
    [
      raw`{"content":[{"type":"resource_link","uri":"acme://a%20b?c=d#e","name":"n","title":"T",`,
      raw`"description":"","mimeType":"text/plain; charset=utf-8","size":0,`,
      raw`"icons":[{"src":"data:image/svg+xml,%3Csvg/%3E","mimeType":"image/svg+xml","sizes":["any"],`,
      raw`"theme":"dark","x":1}]},{"type":"resource","resource":{"uri":"acme://b",`,
      raw`"mimeType":"application/octet-stream","blob":"AAECAw==","_meta":{"x":1}},`,
      raw`"annotations":{"priority":1}}]}`
    ].join('')
  ),
  relayed(
    'integers',
    structured(
      [
        raw`{"beyond2To53":9007199254740993,"maxI64":9223372036854775807,"minI64":-9223372036854775808,`,
        raw`"maxU64":18446744073709551615,"zero":0,"one":1,"minusOne":-1}`
      ].join('')
    )
  ),
  relayed(
    'fractions',
    structured([
      raw`{"one":1.0,"tenth":0.1,"minusZero":-0.0,"exponent":1.5e3,"small":5e-324,`,
      raw`"large":1.7976931348623157e308}`
    ].join(''))
  ),
  relayed(
    'names_of_members',
    structured(
      [
        raw`{"":"empty","a.b":1,"$ref":"#/x","__proto__":{"polluted":true},"constructor":1,"toString":null,`,
        raw`"\u00e9":"e","e\u0301":"combined","b":2,"a":1,"B":3}`
      ].join('')
    )
  ),
  relayed('not_ascii', text('grüße, 世界, שלום, 🦀, 𝔘𝔫𝔦, e\u0301, \u2028\u2029\ufeff\u007f\u0080, 👩‍👩‍👧‍👦')),
  relayed('escaped', text(raw`\u0041\/\"\\\b\f\n\r\t\u00e9\ud83e\udd80\u2028\u001f\u007F\uFFFF`)),
  relayed('escaped_nul', text(raw`before\u0000after`)),
  relayed('mebibyte', text('0123456789 äöü 🦀 ~'.repeat(1 << 16).slice(0, 1 << 20))),
  relayed('many_blocks', `{"content":[${Array(2000).fill('{"type":"text","text":"block"}').join(',')}]}`),
  relayed('nested', structured(`{"a":${'['.repeat(40)}${']'.repeat(40)}}`)),
  hard('integers_beyond_64_bits', structured('{"n":18446744073709551616,"m":123456789012345678901234567890}')),
  hard('minus_zero_integer', structured('{"n":-0}')),
  hard('fraction_of_many_digits', structured('{"n":0.1000000000000000055511151231257827,"m":1.00000000000000000001}')),
  hard('number_beyond_double', structured('{"n":1e400,"m":-1e400,"tiny":1e-400}')),
  hard('lone_surrogate', text(raw`before\ud800after`)),
  hard('duplicate_members', structured('{"a":1,"a":2}')),
  hard('nested_deeply', structured(`{"a":${'['.repeat(500)}${']'.repeat(500)}}`))
];

const needsOk =
  '"inputSchema":{"type":"object"},' +
  '"outputSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}';
const modern = ['modern'];
const schemas = [
  relayed('output_schema_kept', structured('{"ok":true,"more":[]}'), { declaration: needsOk }),
  relayed(
    'error_despite_output_schema',
    [
      raw`{"content":[{"type":"text","text":"it went wrong"}],"structuredContent":{"ok":"not a boolean",`,
      raw`"why":null},"isError":true}`
    ].join(''),
    { declaration: needsOk }
  ),
  entry('output_schema_broken', 'fails', structured('{"ok":"not a boolean"}'), { declaration: needsOk }),
  entry('output_schema_without_structure', 'fails', text('no structure'), { declaration: needsOk }),
  relayed('error_without_structure', raw`{"isError":true,"content":[]}`, { declaration: needsOk }),
  relayed('structured_array', structured('[1,[],{"a":null}]'), {
    eras: modern,
    declaration: '"inputSchema":{"type":"object"},"outputSchema":{"type":"array"}'
  }),
  relayed('structured_string', structured('"text"'), { eras: modern }),
  relayed('structured_number', structured('42'), { eras: modern }),
  relayed('structured_boolean', structured('false'), { eras: modern }),
  relayed('structured_null', structured('null'), { eras: modern }),
  relayed('no_result_type', text('without a resultType'), { eras: modern })
];

const declarations = [
  relayed('declared_fully', structured('{"declared":"with all there is"}'), {
    description: raw`Says \u0041 and \"so on\", grüßt 🦀.\nTwo lines.`,
    declaration: [
      raw`"title":"Fully \u00e9 declared","icons":[{"src":"data:image/png;base64,AA==","mimeType":"image/png",`,
      raw`"sizes":["48x48","any"],"theme":"light","xIcon":1}],"annotations":{"title":"Annotated",`,
      raw`"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,`,
      raw`"xHint":"maybe"},"execution":{"taskSupport":"forbidden","xExecution":[]},`,
      raw`"_meta":{"acme.example/tool":{"a":[1,null]},"big":9007199254740993},"xTool":{"nested":[{}]},`,
      raw`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$comment":"kept",`,
      raw`"type":"object","$defs":{"n":{"type":"integer","maximum":9007199254740993}},`,
      raw`"properties":{"n":{"$ref":"#/$defs/n"},"größe":{"type":"string","x-acme":{"ui":"slider"}}},`,
      raw`"additionalProperties":true,"xSchema":null},"outputSchema":{"type":"object","xOutput":true}`
    ].join(''),
    args: '{"n":7,"größe":"XL"}'
  }),
  relayed('dotted.name', text('a name with a dot')),
  relayed('dotted.name.with-dash_and.more', text('a name with dots')),
  relayed('UPPER-case_Name', text('a name in capitals')),
  relayed(`${'n'.repeat(64)}`, text('a name of 64 characters')),
  relayed('no_description', text('declared with the least')),
  entry('n'.repeat(65), 'refused', text('a name of 65 characters')),
  entry('name with spaces', 'refused', text('a name with spaces')),
  entry('näme', 'refused', text('a name that is not ASCII')),
  entry('schema_unsound', 'refused', text('its schema is none'), {
    declaration: '"inputSchema":{"type":"object","properties":{"a":{"type":"nonsense"}}}'
  })
];
const least = declarations.find(({ name }) => name === 'no_description');
least.declaration = '{"name":"no_description","inputSchema":{"type":"object"}}';

/** What `arguments` was is told by the text, and its bytes by the structure. */
const argumentsSeen = (params) => {
  const seen = params.get('arguments');
  const kind = seen === undefined ? 'absent' : seen === 'null' ? 'null' : seen === '{}' ? 'empty' : 'given';
  return `{"content":[{"type":"text","text":"${kind}"}],"structuredContent":{"arguments":${seen ?? '"absent"'}}}`;
};
const argumentsCases = [
  relayed('arguments_absent', argumentsSeen),
  relayed('arguments_empty', argumentsSeen, { args: '{}' }),
  relayed('arguments_awkward', argumentsSeen, {
    args: [
      raw`{"big":9007199254740993,"one":1.0,"minusZero":-0.0,"empty":[],"object":{},"null":null,`,
      raw`"text":"\u0041\/ 世界 🦀 \u0000","nested":{"a":[[],{}]},"":1}`
    ].join('')
  })
];

const errors = [
  entry('rpc_error', 'fails', undefined, { delivery: 'json' }),
  entry('rpc_error_on_stream', 'fails', undefined, { delivery: 'sse' })
];
for (const failing of errors) {
  failing.error = [
    raw`{"code":-31999,"message":"no such luck 🦀","data":{"detail":[null,{}],"retry":false},"xError":1}`
  ].join('');
}

/** One tool for each way an answer can travel, all with a result that shows where bytes were lost. */
const travelling = [
  raw`{"content":[{"type":"text","text":"grüße 世界 🦀\nline, {brace} \"quote\" \\ data: no: field"},`,
  raw`{"type":"text","text":"","xBlock":[]}],"structuredContent":{"n":9007199254740993,"list":[],`,
  raw`"text":"a\r\nb"},"_meta":{"acme.example/x":null}}`
].join('');
const framed = Object.keys(deliveries).map((delivery) => relayed(`by_${delivery}`, travelling, { delivery }));

export const cases = [...results, ...schemas, ...declarations, ...argumentsCases, ...errors, ...framed];
