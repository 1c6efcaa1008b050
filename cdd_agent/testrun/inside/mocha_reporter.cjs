// A reporter for mocha that writes a line of JSON for each test, with the list of its titles, and a last line. Mocha's own JSON joins them by spaces.
"use strict";
const fs = require("fs");

const plain = (error) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  const { name, message, stack } = error;
  return { name: name && String(name), message: message && String(message), stack: stack && String(stack) };
};

module.exports = class {
  constructor(runner, options) {
    const found = new Map();
    // In parallel runs, each event brings another copy of the test.
    const identify = (test) => test.id || test.__mocha_id__ || test;
    const add = (test, outcome, { titles = test.titlePath(), file = test.file, error, phase = "call" } = {}) => {
      const reruns = typeof test.currentRetry === "function" ? test.currentRetry() : 0;
      const duration_s = Math.max(test.duration ?? 0, 0) / 1000;
      const told = { event: "ended", file, titles, outcome, phase, duration_s, reruns };
      found.set(identify(test), { ...told, error: error && plain(error) });
    };
    runner.on("pass", (test) => add(test, "passed"));
    runner.on("pending", (test) => add(test, "skipped"));
    runner.on("fail", (test, error) => {
      if (test.type !== "hook") return add(test, "failed", { error });
      const phase = (test.originalTitle || test.title).startsWith('"before') ? "setup" : "teardown";
      const current = test.ctx && test.ctx.currentTest;
      if (!current) return add(test, "error", { error, phase });
      const known = found.get(identify(current));
      if (known && known.error) return; // the test's own failure comes first
      const titles = known ? known.titles : [...test.titlePath().slice(0, -1), current.title];
      add(current, "error", { titles, file: known ? known.file : test.file, error, phase });
    });
    runner.on("end", () => {
      const lines = [...found.values(), { event: "over" }].map((line) => JSON.stringify(line) + "\n");
      fs.writeFileSync(options.reporterOptions.output, lines.join(""));
    });
  }
};
