test("one", () => {}); test("two", () => { process.exit(0); }); test("three", () => {});
