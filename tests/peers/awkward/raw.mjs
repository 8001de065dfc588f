// Reads JSON without reading its values: what stands between the commas, byte for byte.

/** The text of each member of the JSON object that `text` is; the last of several with one name. */
export function rawMembers(text) {
  const members = new Map();
  let at = skipSpace(text, 0);
  if (text[at] !== '{') return members;
  at = skipSpace(text, at + 1);
  while (at < text.length && text[at] !== '}') {
    const nameEnd = endOfValue(text, at);
    const name = JSON.parse(text.slice(at, nameEnd));
    // Past the colon.
    const start = skipSpace(text, skipSpace(text, nameEnd) + 1);
    const end = endOfValue(text, start);
    members.set(name, text.slice(start, end));
    at = skipSpace(text, end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
  return members;
}

function skipSpace(text, at) {
  while (at < text.length && ' \t\n\r'.includes(text[at])) at += 1;
  return at;
}

/** The index after the value that begins at `at`. Takes for granted that the text is JSON. */
function endOfValue(text, at) {
  let depth = 0;
  for (let i = at; i < text.length; i += 1) {
    const c = text[i];
    if (c === '"') {
      i += 1;
      while (i < text.length && text[i] !== '"') i += text[i] === '\\' ? 2 : 1;
      if (depth === 0) return i + 1;
    } else if (c === '{' || c === '[') {
      depth += 1;
    } else if (c === '}' || c === ']') {
      if (depth === 0) return i;
      depth -= 1;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && ', \t\n\r'.includes(c)) {
      return i;
    }
  }
  return text.length;
}
