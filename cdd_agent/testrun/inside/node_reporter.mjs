// A reporter for node --test that writes a line of JSON for each test, and a last line for a complete run. Node's JUnit
// report omits files and the failures of groups, and escapes titles twice.
import { readFileSync } from "node:fs";
import { resolve } from "node:path";

const show = (value) => (value === undefined ? undefined : String(value));
const plain = (error) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  return { name: show(error.name), message: show(error.message), stack: show(error.stack) };
};
const usesRunner = (file) => {
  try {
    return /['"]node:test['"]/.test(readFileSync(file, "utf8"));
  } catch {
    return false;
  }
};
const isMarked = (mark) => (mark ?? false) !== false;
const findPhase = ({ failureType, message }) => {
  if (failureType === "hookFailed") return show(message)?.includes("after") ? "teardown" : "setup";
  return failureType === "cancelledByParent" ? "setup" : "call";
};
const findOutcome = ({ skip, todo, details }) => {
  const error = details?.error;
  if (isMarked(skip)) return "skipped";
  if (isMarked(todo)) return error ? "xfailed" : "xpassed";
  if (!error) return "passed";
  return findPhase(error) === "call" ? "failed" : "error";
};

export default async function* (source) {
  const titles = new Map(); // file -> titles of the running test and its groups, outermost first
  const parents = new Set();
  const running = new Map();
  const active = new Set(); // files with a test that ended
  const printed = new Map();

  const format = (event, { file, line, details }, more) =>
    JSON.stringify({ event, file, line, duration_s: Math.max(details?.duration_ms ?? 0, 0) / 1000, ...more }) + "\n";

  const endFile = (data) => {
    const { file, skip, details } = data;
    const error = details?.error;
    if (!error) {
      if (active.has(file)) return "";
      // The process of a file with tests ended before them, or the file is a program that is one test.
      if (usesRunner(file) && !isMarked(skip)) return format("begun", data);
      return format("ended", data, { outcome: findOutcome(data) });
    }
    if (error.failureType === "subtestsFailed") return "";
    return format("unready", data, { phase: "collect", error: plain(error), printed: printed.get(file) });
  };

  const endTest = (data) => {
    const { name, nesting, file, skip, details } = data;
    const key = JSON.stringify([file, nesting, name]);
    running.set(key, { data, count: (running.get(key)?.count ?? 0) - 1 });
    active.add(file);
    const above = (titles.get(file) ?? []).slice(0, nesting);
    above.forEach((_, at) => parents.add(JSON.stringify([file, ...above.slice(0, at + 1)])));
    if (skip === "test name does not match pattern") return "";
    const path = [...above, name];
    const error = details?.error;
    const isSuite = details?.type === "suite";
    const isGroup = isSuite || parents.has(JSON.stringify([file, ...path]));
    if (isGroup && (!error || ["subtestsFailed", "cancelledByParent"].includes(error.failureType))) return "";
    const outcome = findOutcome(data);
    const told = { titles: path };
    if (error) told.error = plain(error.cause === undefined ? error : error.cause);
    if (isSuite && error && error.failureType !== "hookFailed") return format("unready", data, { ...told, phase: "collect" });
    if (!["failed", "error"].includes(outcome)) told.error = undefined;
    return format("ended", data, { ...told, outcome, phase: error ? findPhase(error) : "call" });
  };

  for await (const { type, data } of source) {
    const { name, nesting, file, message } = data;
    const isEnd = type === "test:pass" || type === "test:fail";
    if (type === "test:stderr") {
      const from = resolve(file ?? ""); // a warning of node itself has no file
      printed.set(from, (printed.get(from) ?? "") + message);
    } else if (nesting === 0 && file && resolve(name ?? "") === file) {
      // Node reports a whole file as a test with the file's path for its name.
      if (isEnd) yield endFile(data);
    } else if (type === "test:enqueue") {
      const key = JSON.stringify([file, nesting, name]);
      running.set(key, { data, count: (running.get(key)?.count ?? 0) + 1 });
    } else if (type === "test:start") {
      titles.set(file, [...(titles.get(file) ?? []).slice(0, nesting), name]);
    } else if (isEnd) {
      yield endTest(data);
    }
  }
  for (const { data, count } of running.values()) if (count > 0) yield format("begun", data, { titles: [data.name] });
  yield '{"event":"over"}\n';
}
