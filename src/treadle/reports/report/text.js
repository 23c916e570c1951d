// Text and numbers. Recorded text becomes text nodes, never markup.

const FIRST = 4000; // characters of a text that are shown initially
const MORE = 50000; // further characters per click
const LINES = 60;

// Control characters, marks of writing direction, invisible characters, lone surrogates.
const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Co}]/u;
const ODD_RUN = /([\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Co}])\1*/gu;
const JOINED = /\p{Extended_Pictographic}[\ufe0f\u{1f3fb}-\u{1f3ff}]?$/u;

function el(tag, className, ...kids) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...kids.filter((kid) => kid !== null && kid !== undefined && kid !== ""));
  return made;
}

function codeOf(character) {
  return "U+" + character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
}

function isPlain(character, before, after) {
  if (character === "\n" || character === "\t") return true;
  if (character === "\r") return after === "\n";
  return character === "\u200d" && JOINED.test(before); // part of an emoji
}

// Split a text into visible parts and invisible characters.
function pieces(text, plain, odd) {
  let last = 0;
  for (const found of text.matchAll(ODD_RUN)) {
    const end = found.index + found[0].length;
    if (isPlain(found[1], text.slice(Math.max(0, found.index - 8), found.index), text[end])) continue;
    if (found.index > last) plain(text.slice(last, found.index));
    odd(found[1], found[0].length / found[1].length);
    last = end;
  }
  if (last < text.length) plain(text.slice(last));
}

function marked(into, text, words) {
  if (!words) return into.append(text);
  const low = text.toLowerCase();
  // Some letters change their length with their case, which shifts the indexes.
  if (low.length !== text.length) return into.append(text);
  let last = 0;
  for (let count = 0, at = low.indexOf(words); at >= 0 && count < 500; count++) {
    into.append(text.slice(last, at), el("mark", "", text.slice(at, at + words.length)));
    last = at + words.length;
    at = low.indexOf(words, last);
  }
  into.append(text.slice(last));
}

function shown(text, words) {
  const made = document.createDocumentFragment();
  if (!ODD.test(text)) {
    marked(made, text, words);
    return made;
  }
  pieces(text, (part) => marked(made, part, words), (character, times) => {
    const mark = el("span", "odd", codeOf(character) + (times > 1 ? `×${times}` : ""));
    mark.title = "an invisible character";
    made.append(mark);
  });
  return made;
}

// The text on one line, truncated, for places without room for marks.
function flat(text, most) {
  let made = "";
  const cut = text.slice(0, most * 2).replace(/\s+/g, " ");
  pieces(cut, (part) => (made += part), (character) => (made += `[${codeOf(character)}]`));
  return made.length > most || text.length > most * 2 ? `${made.slice(0, most)}…` : made;
}

function gist(text, most, words) {
  const cut = text.slice(0, most).replace(/\s+/g, " ").trim();
  return el("bdi", "", shown(cut, words), text.length > most ? "…" : "");
}

// The index up to which a text is shown: at most LINES lines and `most` characters.
function placeOf(text, most) {
  let at = -1;
  for (let line = 0; line < LINES; line++) {
    at = text.indexOf("\n", at + 1);
    if (at < 0 || at > most) return Math.min(text.length, most);
  }
  return at;
}

// A block of text with buttons that show the text before and after the visible part.
function block(text, { words = "", prose = false, changed = () => {} } = {}) {
  const pre = el("pre", prose ? "prose" : "");
  let start = 0;
  let end = placeOf(text, FIRST);
  const found = words ? text.toLowerCase().indexOf(words) : -1;
  if (found >= end) {
    start = Math.max(0, found - FIRST / 2);
    end = Math.min(text.length, found + FIRST / 2);
  }
  const part = (from, to) => el("span", "part", shown(text.slice(from, to), words));
  const before = more("earlier characters", () => start, (count) => {
    pre.prepend(part(start - count, start));
    start -= count;
  }, changed);
  const after = more("more characters", () => text.length - end, (count) => {
    pre.append(part(end, end + count));
    end += count;
  }, changed);
  pre.append(part(start, end));
  return el("div", "", before, pre, after);
}

// A block of text that is collapsed, unless it has what is searched for.
function folded(name, text, { words = "", changed = () => {} } = {}) {
  const made = el("details", "", el("summary", "", name), block(text, { words, changed }));
  made.open = words !== "" && text.toLowerCase().includes(words);
  made.addEventListener("toggle", changed);
  return made;
}

// A button for text that is not shown yet; null if there is none.
function more(name, left, show, changed) {
  if (left() === 0) return null;
  const made = el("button", "more");
  made.type = "button";
  const title = () => {
    const count = left();
    const some = count > MORE ? `${amount(MORE)} of ${amount(count)}` : amount(count);
    made.textContent = `Show ${some} ${name}`;
  };
  made.addEventListener("click", () => {
    show(Math.min(MORE, left()));
    if (left() === 0) made.remove();
    else title();
    changed();
  });
  title();
  return made;
}

// Formatted JSON. Every token stays as it was written, so numbers keep their digits.
function pretty(text) {
  if (text.length > 200000 || !/^\s*[[{]/.test(text)) return text;
  try { JSON.parse(text); } catch { return text; }
  const tokens = text.match(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],:]|[^\s{}[\],:"]+/gs) ?? [];
  const spaced = tokens.join("").length + tokens.length <= 76;
  let made = "";
  let depth = 0;
  const line = () => (spaced ? " " : "\n" + "  ".repeat(Math.min(depth, 40)));
  tokens.forEach((token, at) => {
    const isEmpty = /^[}\]]$/.test(tokens[at + 1] ?? "");
    if (token === "{" || token === "[") {
      depth++;
      made += token + (isEmpty || spaced ? "" : line());
    } else if (token === "}" || token === "]") {
      depth--;
      made += (/[{[]$/.test(made) || spaced ? "" : line()) + token;
    } else if (token === ",") made += token + line();
    else made += token === ":" ? ": " : token;
  });
  return made;
}

const NUMBERS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

function amount(number) {
  return NUMBERS.format(number);
}

function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.0095) return `${(value * 1000).toFixed(1)} ms`;
  if (value < 0.9995) return `${(value * 1000).toFixed(0)} ms`;
  if (value < 9.995) return `${value.toFixed(2)} s`;
  if (value < 99.95) return `${value.toFixed(1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} m ${String(Math.floor(value % 60)).padStart(2, "0")} s`;
  return `${Math.floor(value / 3600)} h ${String(Math.floor((value % 3600) / 60)).padStart(2, "0")} m`;
}

function dollars(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "$0";
  if (value < 0.00005) return "< $0.0001";
  return `$${value.toFixed(value < 1 ? 4 : 2)}`;
}

function counted(number, what) {
  return `${amount(number)} ${what}${number === 1 ? "" : "s"}`;
}
