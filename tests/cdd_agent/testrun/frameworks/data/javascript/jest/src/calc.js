exports.add = add; function add(a, b) { return a + b; }
exports.strict = strict; function strict(a) {
  if (a === undefined) throw new TypeError("strict() needs an argument");
  return a.inner.deep;
}
const shelf = exports.shelf = {};
exports.todo = todo; function todo() { throw new Error("not implemented"); }
exports.slow = slow; function slow() { return new Promise(() => {}); }
