// What a node is doing, from /v1/node as it changes (/v1/events). No library, nothing from elsewhere.
// Everything is inserted as text, never as HTML: names and notes may come from others. Control characters are escaped.
"use strict";

const $ = (id) => document.getElementById(id);
const KEPT = "gal-token";
let token = "";
let facts = null;
let seenVersions = "";
let versions = [];
let looking = false;
let again = false;

// Making elements

const plain = (value) => value === null || value === undefined ? "" : String(value).replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu,
  (one) => `\\x${one.codePointAt(0).toString(16).padStart(2, "0")}`);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") made.addEventListener("click", value);
    else if (value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((one) => one !== null && one !== undefined).map((one) => one instanceof Node ? one : plain(one)));
  return made;
}

function table(caption, columns, rows) {
  // columns: [title, function of a row, "number" or ""]; a function may return text or an element.
  if (!rows.length) return make("p", { class: "quiet" }, caption.none);
  const head = make("tr", {}, ...columns.map(([title, , kind]) =>
    make("th", { scope: "col", class: kind || null }, title)));
  const body = rows.map((row) => make("tr", {}, ...columns.map(([title, value, kind]) => {
    const found = value(row);
    return make("td", { class: kind || null, "data-name": title },
      found instanceof Node ? found : plain(found));
  })));
  return make("table", {}, caption.title ? make("caption", {}, caption.title) : null,
    make("thead", {}, head), make("tbody", {}, ...body));
}

function put(id, ...children) {
  // What has not changed stays as it is, so that a screen reader is not disturbed; a focus stays where it was.
  const made = make("div", {}, ...children);
  const place = $(id);
  if (place.innerHTML !== made.innerHTML) {
    const focused = place.contains(document.activeElement) ? document.activeElement : null;
    place.replaceChildren(...made.childNodes);
    const same = focused && [...place.querySelectorAll(focused.tagName)].find((one) => one.textContent === focused.textContent);
    same?.focus({ preventScroll: true });
  }
}

function badge(id, text, kind) {
  const place = $(id);
  if (place.textContent !== text) place.textContent = text;
  place.className = `badge ${kind}`;
}

// Numbers as text

const number = (value) => value === null || value === undefined ? "" : Number(value).toLocaleString("en");
const loss = (value) => value === null || value === undefined ? "" : Number(value).toPrecision(4);
const bytes = (value) => value >= 1e9 ? `${(value / 1e9).toFixed(1)} GB`
  : value >= 1e6 ? `${(value / 1e6).toFixed(1)} MB` : value >= 1e3 ? `${(value / 1e3).toFixed(1)} kB` : `${value} B`;
function duration(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}
const ago = (when) => when ? `${duration(facts.now - when)} ago` : "never";
const seconds = (value) => value === null ? "" : value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(2)} s`;

// Present activity

const AWAITED = { fit: "fitted values", begin: "row alignment", revisit: "fitted values of all rounds", predict: "predictions",
  end: "confirmation of the end", blind: "row alignment", connect: "its connection", join: "gal join there" };

function awaited(one) {
  const round = one.round ? ` of round ${one.round}` : "";
  const left = one.seconds_left === null ? "" : `, ${duration(one.seconds_left)} left`;
  const away = one.connected ? "" : " (not connected)";
  return `${one.organization}${away}: ${AWAITED[one.what] || one.what}${round}, for ${duration(one.for_seconds)}${left}`;
}

function summary() {
  const learning = facts.learning;
  if (learning && learning.state === "learning") {
    const at = Math.max(learning.round ? learning.round + 1 : 0, ...facts.waiting.map((one) => one.round));
    const round = at ? `round ${Math.min(at, learning.rounds)} of ${learning.rounds}`
      : facts.waiting.some((one) => one.what === "begin") ? "row alignment" : "session setup";
    const who = facts.waiting.map((one) => one.organization).join(", ");
    return `Learning ${learning.task}: ${round}${who ? `; waiting for ${who}` : ""}.`;
  }
  if (facts.computing.length) return `Computing for ${facts.computing.map((one) => one.for).join(", ")}.`;
  const failed = learning && learning.state === "ended early" ? ` The last learning, of ${learning.task}, ended early.` : "";
  return `No task is being learned.${failed} ${facts.ready ? "Ready." : "Not ready: see Health."}`;
}

const NO_OWN = "This node has no task of its own.";
const hasOwn = () => facts.tasks.some((one) => one.role === "label holder");

function showLearning() {
  const learning = facts.learning;
  const progress = $("progress");
  progress.hidden = !learning || !learning.rounds || learning.state !== "learning";
  if (!learning) {
    put("learning", make("span", { class: "quiet" }, hasOwn() ? "No task was learned since this node started." : NO_OWN));
    put("waiting");
    put("curve");
    return;
  }
  if (learning.rounds) {
    progress.max = learning.rounds;
    progress.value = learning.round;
  }
  const name = `${learning.task}${learning.version ? `, version ${learning.version}` : ""}: `;
  if (learning.state === "learning") {
    const rounds = learning.rounds ? `${learning.round} of at most ${learning.rounds} rounds done, ` : "";
    put("learning", `${name}${rounds}for ${duration(facts.now - learning.since)}.`);
  } else {
    const took = `${learning.round} ${learning.round === 1 ? "round" : "rounds"} in ${duration(learning.ended - learning.since)}`;
    if (learning.state === "finished") put("learning", `${name}${took}; finished`);
    else put("learning", make("span", { class: "bad" }, `${name}ended early, ${took}: ${learning.problem}`));
  }
  const lines = facts.waiting.map((one) => make("li", { class: "wait" }, awaited(one)));
  const missed = Object.entries(learning.missed || {}).map(([who, why]) =>
    make("li", { class: "bad" }, `${who} missed the last round: ${why}`));
  put("waiting", lines.length + missed.length ? make("ul", { class: "plain", "aria-label": "Waited for" }, ...lines, ...missed) : null);
  showCurve(curveOf(learning));
}

function curveOf(learning) {
  // Losses of a cross-validation are known at its end, with the version.
  const version = versions.find((one) => one.task === learning.task && one.version === learning.version);
  return learning.state === "finished" && version && version.curve.length ? version.curve : learning.curve;
}

// The curve

const SVG = "http://www.w3.org/2000/svg";
function draw(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function axisTicks(low, high, powers, most = 6) {
  // Round numbers at an axis, from at or below the lowest to at or above the highest value.
  if (powers) {
    const every = (factors) => {
      const found = [];
      for (let at = Math.floor(Math.log10(low)); at <= Math.ceil(Math.log10(high)); at += 1) found.push(...factors.map((one) => one * 10 ** at));
      const first = found.findLastIndex((one) => one <= low * (1 + 1e-9));
      return found.slice(Math.max(first, 0), found.findIndex((one) => one >= high * (1 - 1e-9)) + 1).map((one) => Number(one.toPrecision(6)));
    };
    const [fine, coarse, rough] = [every([1, 2, 5]), every([1, 3]), every([1])];
    const chosen = fine.length <= most + 1 ? fine : coarse.length <= most + 1 ? coarse : rough;
    const step = Math.ceil((chosen.length - 1) / most);
    return chosen.filter((_, at) => at % step === 0 || at === chosen.length - 1);
  }
  if (!(high > low)) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
  const size = 10 ** Math.floor(Math.log10((high - low) / (most - 1)));
  const ends = (step) => [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  const step = [1, 2, 2.5, 5, 10, 20, 50].map((one) => one * size).find((one) => ends(one)[1] - ends(one)[0] < most);
  const [first, last] = ends(step);
  return Array.from({ length: last - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(10)));
}

function tickWords(ticks, powers) {
  // All with as many decimals; the smallest may be 0.0001 where others are 10.
  if (powers || Math.max(...ticks.map(Math.abs)) >= 1e9) return ticks.map((one) => one >= 1e9 || one < 1e-4 ? one.toExponential()
    : one.toLocaleString("en", { maximumSignificantDigits: 6 }));
  const decimals = Math.max(...ticks.map((one) => (String(Number(one.toFixed(10))).split(".")[1] || "").length));
  return ticks.map((one) => one.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
}

function showCurve(curve) {
  const values = curve.flatMap((one) => [one.train_loss, one.validation_loss]).filter((one) => one !== null);
  if (curve.length < 2 || !values.length) { put("curve"); return; }
  const wide = Math.max(280, $("curve").clientWidth || 720);
  const last = Math.max(curve[curve.length - 1].round, facts.learning.rounds || 0, 1);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const powers = low > 0 && high / low > 10; // the first round would hide all others
  const scale = powers ? Math.log : (value) => value;
  const ticks = axisTicks(low, high, powers);
  const words = tickWords(ticks, powers);
  const [bottomOf, topOf] = [scale(ticks[0]), scale(ticks[ticks.length - 1])];
  const [width, height, bottom, top, right] = [wide, 240, 30, 12, 14];
  const left = 16 + 7.5 * Math.max(...words.map((one) => one.length));
  const x = (round) => left + (width - left - right) * round / last;
  const y = (value) => top + (height - top - bottom) * (topOf - scale(value)) / (topOf - bottomOf);
  const label = describe(curve);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  ticks.forEach((value, at) => {
    svg.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    svg.append(draw("text", { class: "tick loss", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, words[at]));
  });
  const step = Math.max(1, Math.ceil(last * 40 / width));
  for (let round = 0; round <= last; round += step) {
    svg.append(draw("text", { class: "tick", x: x(round), y: height - 8, "text-anchor": "middle" }, String(round)));
  }
  const validated = curve.some((one) => one.validation_loss !== null);
  line(svg, curve, "train_loss", "first", x, y);
  if (validated) line(svg, curve, "validation_loss", "second", x, y);
  const caption = make("figcaption", {}, make("span", { class: "key" }, "train loss"),
    validated ? make("span", { class: "key second" }, "validation loss") : null, make("span", {}, powers ? "by round, logarithmic" : "by round"));
  const open = $("curve").querySelector("details")?.open;
  const rows = table({ none: "" }, [["round", (one) => one.round, "number"], ["train loss", (one) => loss(one.train_loss), "number"],
    ["validation loss", (one) => loss(one.validation_loss), "number"]], curve);
  put("curve", svg, caption, make("details", open ? { open: "" } : {}, make("summary", {}, "The same as a table"), rows));
}

function line(svg, curve, key, kind, x, y) {
  const points = curve.filter((one) => one[key] !== null);
  svg.append(draw("polyline", { class: `${kind}-line`, points: points.map((one) => `${x(one.round)},${y(one[key])}`).join(" ") }));
  for (const one of points) svg.append(draw("circle", { class: `${kind}-dot`, cx: x(one.round), cy: y(one[key]), r: 3.5 }));
}

function describe(curve) {
  const [first, final] = [curve[0], curve[curve.length - 1]];
  const validation = final.validation_loss === null ? "" : `, validation loss from ${loss(first.validation_loss)} to ${loss(final.validation_loss)}`;
  return `Train loss from ${loss(first.train_loss)} to ${loss(final.train_loss)}${validation} after ${final.round} rounds`;
}

// The other cards

function showComputing() {
  const rows = facts.computing.map((one) => make("li", { class: "wait" },
    `${one.what}${one.round ? `, round ${one.round}` : ""} of ${one.task} for ${one.for}, ${duration(facts.now - one.since)}`));
  put("computing", rows.length ? make("ul", { class: "plain" }, ...rows) : make("p", { class: "quiet" }, "No request is being computed."));
}

function showPredictions() {
  const found = facts.predictions;
  const lines = [["in the last minute", number(found.last_minute)], ["median time", seconds(found.p50_seconds) || "–"],
    ["99th percentile", seconds(found.p99_seconds) || "–"], ["rows since the start", number(found.rows)],
    ["degraded rows", number(found.degraded)], ["failed requests", number(found.failed)]];
  put("predictions", ...lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function showHealth() {
  badge("ready", facts.ready ? "ready" : "not ready", facts.ready ? "good" : "bad");
  put("checks", ...facts.checks.map((one) => make("li", one.ok ? {} : { class: "bad" }, `${one.name}: ${one.message}`)));
}

function showPartners() {
  const link = (one) => one.connected ? make("span", { class: "good" }, "connected")
    : make("span", { class: "warn" }, one.problem ? `no stream: ${one.problem}` : "not connected");
  put("partners", table({ none: "No cards of other organizations yet: gal cards add FILE." }, [
    ["organization", (one) => one.name], ["stream", link], ["joined tasks", (one) => one.tasks_joined.join(", ")],
    ["not joined", (one) => one.tasks_not_joined.join(", ")],
    ["last seen", (one) => ago(one.seen)], ["last reply", (one) => ago(one.replied)],
    ["missed rounds", (one) => one.missed, "number"], ["rows out of range", (one) => number(one.outside), "number"],
    ["drift", (one) => one.drift ? one.drift.toFixed(2) : "0", "number"]], facts.partners));
}

function showTasks() {
  put("tasks", table({ none: "No tasks yet: gal invite (own), gal join (of others)." }, [
    ["task", (one) => one.name], ["role", (one) => one.role], ["label holder", (one) => one.label_holder],
    ["state", (one) => one.state],
    ["organizations", (one) => Object.entries(one.members).map(([who, how]) => how === "joined, connected" ? who : `${who} (${how})`).join(", ")]], facts.tasks));
  options("audit-task", facts.tasks.map((one) => [one.id, one.name]));
  options("audit-peer", facts.partners.map((one) => [one.name, one.name]));
}

function options(id, wanted) {
  const place = $(id);
  const chosen = place.value;
  const text = JSON.stringify(wanted);
  if (place.dataset.wanted === text) return;
  place.dataset.wanted = text;
  while (place.options.length > 1) place.remove(1);
  for (const [value, name] of wanted) place.append(make("option", { value }, name));
  place.value = chosen;
}

async function showVersions() {
  versions = (await ask("/v1/versions")).versions;
  const gained = ({ contributions }) => !contributions ? "" : !(contributions.gain.value > 0) ? "no gain"
    : Object.entries(contributions.by_organization).sort((a, b) => b[1].value - a[1].value)
      .map(([who, one]) => `${who} ${Math.round(100 * one.value / contributions.gain.value)} % (${one.verdict})`).join(", ");
  const act = (one) => one.active ? make("span", { class: "badge good" }, "predicts") : "";
  const now = facts.learning;
  const state = (one) => one.status !== "begun" ? one.status : now && now.state === "learning" && now.task === one.task
    && now.version === one.version ? "learning now" : "interrupted";
  put("versions", table({ none: hasOwn() ? "No version yet: gal learn TASK." : NO_OWN }, [
    ["task", (one) => one.task], ["version", (one) => one.version, "number"], ["state", state],
    ["rows", (one) => number(one.n_rows), "number"], ["rounds", (one) => one.rounds, "number"],
    ["train loss", (one) => loss(one.train_loss), "number"], ["validation loss alone", (one) => loss(one.alone_validation_loss), "number"],
    ["validation loss assisted", (one) => loss(one.validation_loss), "number"], ["contributions", gained], ["", act]], versions));
  showLearning();
}

async function showPrivacy() {
  const found = await ask("/v1/privacy");
  const epsilon = (value) => value === null ? "unbounded" : Number(value).toPrecision(3);
  const subject = (name, one) => ({ name, ...one });
  const rows = [...found.labels.map((one) => subject(`label ${one.column}`, one)), subject("replies about own rows", found.answers)];
  const noiseless = found.answers.plain.map((one) => `Replies for ${one.task} of ${one.label_holder} were sent without noise.`);
  const box = make("div", { class: "scroll" }, table({ none: "No privacy budget was spent." }, [
    ["subject", (one) => one.name], ["epsilon spent", (one) => one.unprotected ? "unbounded" : epsilon(one.spent), "number"],
    ["left", (one) => one.budget ? epsilon(one.left) : "no budget set", "number"], ["delta", (one) => one.delta || "0", "number"],
    ["recipients", (one) => Object.keys(one.peers).join(", ")]], rows));
  put("privacy", box, ...noiseless.map((one) => make("p", { class: "warn" }, one)));
}

async function showAudit(verify = false) {
  const direction = $("audit-direction").value;
  const words = { in: "incoming", out: "outgoing", own: "this node" };
  const wanted = new URLSearchParams({ task: $("audit-task").value, peer: $("audit-peer").value, last: direction ? 1000 : 50, verify });
  const found = await ask(`/v1/audit?${wanted}`);
  const chain = found.verified;
  if (chain) badge("chain", chain.holds ? `chain verified: ${number(chain.entries)} entries` : "the chain is broken", chain.holds ? "good" : "bad");
  if (chain && !chain.holds) notice(chain.problem);
  const mine = (one) => (!$("audit-task").value || one.task === $("audit-task").value)
    && (!$("audit-peer").value || one.peer === $("audit-peer").value) && (!direction || one.direction === direction);
  put("sums", table({ title: "Messages by organization", none: "No messages yet." }, [
    ["organization", (one) => one.peer || "unauthenticated peers"], ["direction", (one) => words[one.direction]],
    ["messages", (one) => number(one.messages), "number"], ["bytes", (one) => bytes(one.n_bytes), "number"],
    ["kinds", (one) => one.kinds.join(", ")]], summed(found.summary.filter((one) => one.direction !== "own" && mine(one)))));
  put("entries", make("details", $("entries").querySelector("details")?.open ? { open: "" } : {}, make("summary", {}, "Newest entries"),
    table({ none: "No entries." }, [["time (UTC)", (one) => one.time.slice(0, 19).replace("T", " ")], ["direction", (one) => words[one.direction]],
      ["organization", (one) => one.peer], ["task", (one) => one.task_name], ["kind", (one) => one.kind],
      ["round", (one) => one.round || "", "number"], ["shape", (one) => one.shape], ["bytes", (one) => one.n_bytes ? bytes(one.n_bytes) : "", "number"],
      ["note", (one) => one.note]], found.entries.filter(mine).slice(-50).reverse())));
}

function summed(totals) {
  // One line for messages to an organization, and one for those from it.
  const found = new Map();
  for (const one of totals) {
    const key = `${one.peer} ${one.direction}`;
    if (!found.has(key)) found.set(key, { peer: one.peer, direction: one.direction, messages: 0, n_bytes: 0, counts: {} });
    const sum = found.get(key);
    sum.messages += one.messages;
    sum.n_bytes += one.n_bytes;
    sum.counts[one.kind] = (sum.counts[one.kind] || 0) + one.messages;
  }
  return [...found.values()].map((one) => ({ ...one, kinds: Object.entries(one.counts).map(([kind, n]) => `${number(n)} ${kind}`) }));
}

// Requests to the node

async function ask(path) {
  const how = { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" };
  const answer = await fetch(path, how);
  if (answer.status === 401) { enter("This is not the token of the node."); throw new Error("no token"); }
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.error);
  return content;
}

function notice(sentence) {
  $("notice").textContent = sentence;
  $("notice").hidden = !sentence;
}

function show(found) {
  facts = found;
  $("main").hidden = false;
  $("name").textContent = plain(facts.organization);
  document.title = `${facts.organization} – GAL node`;
  $("fingerprint").textContent = facts.fingerprint;
  $("software").textContent = `${facts.software}, running for ${duration(facts.now - facts.started)}`;
  const sentence = summary();
  if ($("sentence").textContent !== sentence) $("sentence").textContent = sentence;
  showLearning(); showComputing(); showPredictions(); showHealth(); showPartners(); showTasks();
  const seen = JSON.stringify([facts.tasks.map((one) => [one.id, one.active, one.versions, one.state]), facts.learning?.state, facts.learning?.round]);
  if (seen !== seenVersions) { seenVersions = seen; slowly(); }
}

async function slowly() {
  // Slow requests, after a change and every 30 seconds, one at a time.
  if (looking) { again = true; return; }
  looking = true;
  try { await Promise.all([showVersions(), showPrivacy(), showAudit(!$("chain").textContent)]); } catch (error) { if (token) notice(error.message); }
  looking = false;
  if (again) { again = false; slowly(); }
}

async function watch() {
  // Server-sent events through fetch, as EventSource of a browser cannot send a token.
  let pause = 1000;
  while (token) {
    try {
      const answer = await fetch("/v1/events", { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
      if (answer.status === 401) return enter("This is not the token of the node.");
      if (!answer.ok) throw new Error((await answer.json()).error);
      badge("live", "live", "good");
      sessionStorage.setItem(KEPT, token);
      pause = 1000;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ""; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
          if (text.startsWith("data: ")) show(JSON.parse(text.slice(6, end)));
        }
      }
    } catch (error) { /* the node ended, or restarts */ }
    badge("live", "not reached", "bad");
    await new Promise((done) => setTimeout(done, pause));
    pause = Math.min(2 * pause, 15000);
  }
}

function enter(sentence = "") {
  token = "";
  sessionStorage.removeItem(KEPT);
  $("main").hidden = true;
  $("entry").hidden = false;
  badge("live", "needs the token", "warn");
  notice(sentence);
  $("token").focus();
}

function begin(given) {
  token = given;
  $("entry").hidden = true;
  notice("");
  watch();
}

document.addEventListener("DOMContentLoaded", () => {
  $("entry").addEventListener("submit", (event) => { event.preventDefault(); begin($("token").value.trim()); $("token").value = ""; });
  $("filter").addEventListener("change", () => showAudit().catch((error) => notice(error.message)));
  $("filter").addEventListener("submit", (event) => event.preventDefault());
  $("verify").addEventListener("click", () => showAudit(true).catch((error) => notice(error.message)));
  window.addEventListener("resize", () => { if (facts && !$("main").hidden) showLearning(); });
  setInterval(() => { if (token && facts) slowly(); }, 30000);
  const given = location.hash.slice(1);
  if (given) history.replaceState(null, "", location.pathname);
  if (given || sessionStorage.getItem(KEPT)) begin(given || sessionStorage.getItem(KEPT));
  else enter();
});
