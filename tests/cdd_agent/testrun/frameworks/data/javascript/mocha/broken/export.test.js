import { nope } from '../src/calc.js';
it("uses an export that is not there", () => { nope(1); });
