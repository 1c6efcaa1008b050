export function add(a, b) { return a + b; }
export function strict(a) {
  if (a === undefined) throw new TypeError("strict() needs an argument");
  return a.inner.deep;
}
export const shelf = {};
export function todo() { throw new Error("not implemented"); }
export function slow() { return new Promise(() => {}); }
