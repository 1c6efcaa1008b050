it("one", () => {}); it("two", () => { process.exit(0); }); it("three", () => {});
