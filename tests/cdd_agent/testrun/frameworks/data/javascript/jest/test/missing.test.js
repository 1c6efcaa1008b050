const { nope } = require('../src/nowhere.js');
test("x", () => {});
