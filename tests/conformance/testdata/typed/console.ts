// What scripts have of the console.
import { entity } from "@hostd/guest";

entity("talker", { initial: () => ({}) })
  .command("talk", () => {
    console.debug("a", 1);
    console.log({ b: 2n }, new Error("c"));
    console.info();
    console.warn(undefined);
    console.error(null);
    // @ts-expect-error
    console.table([]);
  });
