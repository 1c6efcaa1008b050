afterAll(() => { throw new Error("late file"); }); test("in c", () => {});
