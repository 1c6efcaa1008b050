// A reporter for node --test that writes each event as a line, and a last line for a complete run. Node's JUnit report
// omits files and the failures of groups, and escapes titles twice.
const KEPT = new Set(["test:enqueue", "test:start", "test:pass", "test:fail", "test:stderr"]);
const plain = (error, depth) => {
  if (error === null || typeof error !== "object") return { message: String(error) };
  const { name, message, stack, failureType, exitCode, cause } = error;
  const told = { name, message, stack, failureType };
  for (const key in told) told[key] = told[key] === undefined ? undefined : String(told[key]);
  return { ...told, exitCode, cause: cause === undefined || depth > 8 ? undefined : plain(cause, depth + 1) };
};
export default async function* (source) {
  for await (const { type, data } of source) {
    if (!KEPT.has(type)) continue;
    const { name, nesting, file, line, message, details, skip, todo } = data;
    const marks = { skip: skip === true ? "" : skip, todo: todo === true ? "" : todo };
    const error = details?.error ? plain(details.error, 0) : undefined;
    const told = { isSuite: details?.type === "suite", duration: details?.duration_ms, error, ...marks };
    yield JSON.stringify({ type, name, nesting, file, line, message, ...told }) + "\n";
  }
  yield '{"type":"end"}\n';
}
