import pad from 'left-pad-none';
it("x", () => {});
