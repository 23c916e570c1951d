// The steps of a run as a tree of nodes, and their rows.

const STATUS_LABELS = { done: "", asked: "not reached", running: "did not end", over_budget: "over budget", timeout: "timed out" };
const HAS_TEXT = new Set(["message", "instructions", "guidance", "answer", "streamed", "failure"]);
let made = 0;

function nodeOf(kind, data, parent) {
  return { id: `step-${++made}`, kind, data, parent, level: parent ? parent.level + 1 : 1, open: false, height: 0, kids: null };
}

function nodesOf(run, parent) {
  const nodes = run.steps.map((step) => nodeOf("iteration", step, parent));
  const end = nodeOf("end", run, parent);
  return [...nodes, end];
}

function kidsOf(node) {
  if (node.kids === null) {
    if (node.kind === "iteration") node.kids = node.data.rows.map((row) => nodeOf(row.k, row, node));
    else if (node.kind === "call") node.kids = node.data.runs.map((run) => nodeOf("run", run, node));
    else if (node.kind === "run") node.kids = nodesOf(node.data, node);
    else if (node.kind === "view") node.kids = node.data.messages.map((one) => nodeOf("message", one, node));
    else if (node.kind === "end") node.kids = node.data.tail.map((one) => nodeOf("message", one, node));
    else node.kids = [];
  }
  return node.kids;
}

function isLeaf(node) {
  if (node.kind === "iteration" || node.kind === "run" || node.kind === "call" || node.kind === "view") return false;
  if (node.kind === "end") return node.data.tail.length === 0;
  if (HAS_TEXT.has(node.kind)) return !(node.data.text || node.data.calls || node.data.extra);
  return node.kind === "guard" || node.kind === "rewritten" ? true : !node.data.text;
}

// The text of a node without its children, for the search.
function wordsOf(node) {
  const data = node.data;
  switch (node.kind) {
    case "iteration": return `iteration ${data.n}`;
    case "run": return `${data.agent}\n${data.id}\n${data.headline}\n${data.why}`;
    case "end": return `${data.headline}\n${data.why}`;
    case "call":
      return [data.name, data.id, data.args, pretty(data.args), data.result, data.trace, data.guard, data.status,
        ...data.retries.flatMap((one) => [one.text, one.trace])].join("\n");
    default: return [data.role, data.text, data.calls, data.extra].join("\n");
  }
}

function isTrouble(node) {
  const data = node.data;
  if (node.differs) return true;
  switch (node.kind) {
    case "call": return data.error || Boolean(data.guard) || data.nudges > 0 || data.retries.length > 0;
    case "guard": case "view": case "retry": case "failure": case "rewritten": return true;
    default: return false;
  }
}

function tag(text, kind) {
  return el("span", `tag ${kind ?? ""}`, text);
}

function tagsOfCall(call) {
  const tags = [];
  const status = STATUS_LABELS[call.status] ?? call.status.replaceAll("_", " ");
  if (status) tags.push(tag(status, call.status === "timeout" || call.status === "invalid" ? "bad" : "warn"));
  else if (call.error) tags.push(tag("failed", "bad"));
  if (call.retries.length) tags.push(tag(counted(call.retries.length, "retry").replace("retrys", "retries"), "warn"));
  if (call.nudges) tags.push(tag("nudged", "warn"));
  if (call.runs.length) tags.push(tag("subagent", "kin"));
  if (call.within !== null) tags.push(tag("recipe"));
  return tags;
}

function whatOfIteration(step, words) {
  const what = el("span", "what");
  const calls = step.rows.filter((row) => row.k === "call");
  const count = (test) => calls.filter(test).length;
  const failed = count((call) => call.error && ["done", "timeout", "invalid"].includes(call.status));
  const notRun = count((call) => call.guard && call.status !== "invalid");
  const nudged = count((call) => call.nudges > 0);
  const retries = step.retries.length + calls.reduce((sum, call) => sum + call.retries.length, 0);
  if (step.failed) what.append(tag("model failed", "bad"));
  if (failed) what.append(tag(`${failed} failed`, "bad"));
  if (notRun) what.append(tag(`${notRun} not run`, "warn"));
  if (nudged) what.append(tag("nudged", "warn"));
  if (retries) what.append(tag(retries === 1 ? "1 retry" : `${retries} retries`, "warn"));
  for (const row of step.rows) {
    if (row.k === "guard") what.append(tag(row.kind, "warn"));
    if (row.k === "rewritten") what.append(tag("rewritten"));
    if (row.k === "view") what.append(tag("request edited"));
  }
  if (calls.some((call) => call.runs.length)) what.append(tag("subagent", "kin"));
  const names = new Map();
  for (const call of calls) if (call.within === null) names.set(call.name, (names.get(call.name) ?? 0) + 1);
  const shownNames = [...names].slice(0, 8).map(([name, times]) => flat(name, 40) + (times > 1 ? ` ×${times}` : ""));
  if (names.size > 8) shownNames.push("…");
  if (shownNames.length) what.append(el("span", "call", shownNames.join(", ")));
  const answer = step.rows.find((row) => row.k === "answer" || row.k === "streamed");
  if (answer && answer.text) what.append(el("span", "gist", gist(answer.text, 200, words)));
  else if (!calls.length && !step.failed) what.append(el("span", "gist", "no answer"));
  const speed = speedOf(step);
  if (speed) what.title = speed;
  return what;
}

// The time to the first token, and the tokens per second from there on.
function speedOf(step) {
  const first = step.first === null ? "" : `first token after ${seconds(step.first)}`;
  const rate = step.rate === null ? "" : `${amount(Math.round(step.rate))} tokens/s`;
  return [first, rate].filter(Boolean).join(", ");
}

function tokensOf(usage) {
  if (!usage || (usage.least && !usage.total)) return "";
  return `${usage.about ? "≈ " : ""}${amount(usage.in)} → ${amount(usage.out)}`;
}

const LABELS = {
  instructions: "instructions", guidance: "guidance", answer: "model", streamed: "model", retry: "retry", failure: "model", guard: "guard",
  rewritten: "history",
};

// The cells of a row: number, text, tokens, cost, time.
function cellsOf(node, words) {
  const data = node.data;
  switch (node.kind) {
    case "iteration": {
      const end = data.e ?? data.a;
      const took = end !== null && data.t !== null ? end - data.t : data.m;
      const what = whatOfIteration(data, words);
      const isDeep = node.level > 1; // the number is part of the indented text
      if (isDeep) what.prepend(el("span", "role", `iteration ${data.n}`));
      return [isDeep ? "" : data.n, what, tokensOf(data.usage), dollars(data.usage?.cost), seconds(took)];
    }
    case "call": {
      const what = el("span", "what", el("span", "role", "call"), ...tagsOfCall(data));
      what.append(el("span", "call", el("b", "", gist(data.name, 80, words)), " ", el("span", "faint", gist(data.args, 200, words))));
      const usage = data.runs.length ? data.runs[data.runs.length - 1].usage : null;
      return ["", what, tokensOf(usage), dollars(usage?.cost), seconds(data.d)];
    }
    case "run": {
      const what = el("span", "what", el("span", "role", "subagent"), el("b", "", gist(data.agent || "run", 80, words)));
      what.append(el("span", "gist", `${data.headline.toLowerCase()}, ${counted(data.iterations, "iteration")}`));
      return ["", what, "", "", seconds(data.duration)];
    }
    case "view": {
      const what = el("span", "what", el("span", "role", "request"));
      what.append(el("span", "gist", `edited by stages; ${counted(data.messages.length, "message")} sent`));
      return ["", what, "", "", ""];
    }
    case "end": {
      const isGood = data.status === "ok";
      const what = el("span", "what", el("b", "", data.headline));
      if (!isGood && data.why) what.append(el("span", "gist", gist(data.why, 300, words)));
      return ["", what, tokensOf(data.usage), dollars(data.usage.cost), seconds(data.duration)];
    }
    default: {
      const role = node.kind === "message" ? data.role : LABELS[node.kind];
      const what = el("span", "what", el("span", "role", gist(role, 20, words)));
      if (node.kind === "failure") what.append(tag("failed", "bad"));
      if (node.kind === "guard") what.append(tag(data.kind, "warn"));
      if (node.kind === "streamed") what.append(tag("interrupted", "warn"));
      if (data.refusal) what.append(tag("refused", "warn"));
      if (node.kind === "retry") what.append(tag(`attempt ${data.attempt} failed, retried after ${seconds(data.delay)}`, "warn"));
      const text = data.text || data.calls || data.extra || "";
      what.append(el("span", node.kind === "answer" ? "" : "gist said-line", gist(text, 300, words)));
      if (!text) what.append(el("span", "faint", "(empty)"));
      return ["", what, "", "", ""];
    }
  }
}

function titled(name, ...parts) {
  return [el("h3", "", name), ...parts];
}

// The body of an expanded row; null if it has only child rows.
function bodyOf(node, words, changed) {
  const data = node.data;
  const options = { words, changed };
  if (node.kind === "call") return bodyOfCall(data, options);
  if (node.kind === "run") return el("div", "body", el("p", "faint", [data.why, data.model && `model ${data.model}`, `run ${data.id}`].filter(Boolean).map((one) => flat(one, 400)).join(" · ")));
  if (!HAS_TEXT.has(node.kind) && node.kind !== "retry") return null;
  const body = el("div", "body");
  const isProse = ["answer", "message", "instructions"].includes(node.kind);
  if (data.text) body.append(block(isProse ? data.text : pretty(data.text), { ...options, prose: isProse }));
  if (data.calls) body.append(...titled("calls", block(pretty(data.calls), options)));
  if (data.extra) body.append(...titled("other fields", block(pretty(data.extra), options)));
  if (data.finish) body.append(el("p", "faint", "finish reason: ", gist(data.finish, 60)));
  return body;
}

function bodyOfCall(call, options) {
  const body = el("div", "body");
  if (call.guard) body.append(el("p", call.status === "invalid" ? "note bad" : "note", shown(call.guard, options.words)));
  if (call.nudges) body.append(el("p", "note", `The result has a note: the same call was made ${call.nudges} times.`));
  if (call.progress) body.append(el("p", "note", `Latest progress: ${shown(call.progress, options.words)}`));
  body.append(...titled("arguments", block(pretty(call.args), options)));
  for (const retry of call.retries) {
    body.append(...titled(`attempt ${retry.attempt} failed, retried after ${seconds(retry.delay)}`, block(retry.text, options)));
    if (retry.trace) body.append(folded("traceback", retry.trace, options));
  }
  if (call.result !== null) {
    body.append(...titled(call.error ? "error, as sent to the model" : "result", block(pretty(call.result), options)));
  }
  if (call.trace) body.append(folded("traceback", call.trace, options));
  body.append(el("p", "faint", "id ", el("span", "mono", gist(call.id, 200, options.words))));
  return body;
}

function rowOf(node, words, changed) {
  const isTop = node.kind === "iteration" || node.kind === "end" || node.kind === "run";
  const row = el("div", isTop ? `row ${node.kind}${node.level > 1 ? " deep" : ""}` : "row sub");
  const [number, what, tokens, cost, time] = cellsOf(node, words);
  const fold = el("span", "fold", isLeaf(node) ? "" : "▸");
  fold.setAttribute("aria-hidden", "true");
  const cells = [tokens, cost, time].map((text) => el("span", "amount", text));
  row.append(el("div", "head", fold, el("span", "no", String(number)), what, ...cells));
  if (node.level > 2) what.style.paddingLeft = `${(node.level - 2) * 1.3}rem`;
  if (node.differs) {
    row.classList.add("differs");
    what.prepend(tag("first difference", "bad"));
  }
  row.id = node.id;
  row.dataset.kind = node.kind;
  row.setAttribute("role", "treeitem");
  row.setAttribute("aria-level", String(node.level));
  if (!isLeaf(node)) row.setAttribute("aria-expanded", String(node.open));
  if (node.open) {
    const body = bodyOf(node, words, changed);
    if (body) {
      if (node.level > 2) body.style.marginLeft = `${(node.level - 2) * 1.3}rem`;
      row.append(body);
    }
  }
  return row;
}
