const { nope } = require('../src/calc.js');
test("uses an export that is not there", () => { expect(nope(1)).toBe(1); });
