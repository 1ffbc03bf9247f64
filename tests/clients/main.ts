// Runs the scenario in Node.
import { story, type Config } from "./scenario.js";

declare const process: { argv: string[]; stdout: { write(text: string): void } };

process.stdout.write(JSON.stringify(await story(JSON.parse(process.argv[2]!) as Config)));
