const pad = require('left-pad-none');
test("x", () => {});
