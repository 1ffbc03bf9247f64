package modulecheck

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/abi/abitest"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// NewCommand returns the command 'hostd module check'.
func NewCommand(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var samples string
	var seed uint64
	c := cli.Leaf("check FILE.wasm", "Check a module with the conformance suite; needs no node", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		options := abitest.Options{Seed: seed}
		if samples != "" {
			var err error
			if options.Samples, err = ReadSamples(samples); err != nil {
				return err
			}
		}
		wasm, err := cli.ReadModule(args[0])
		if err != nil {
			return err
		}
		v, err := Run(ctx, wasm, options)
		if err != nil {
			return cli.Hint(fmt.Errorf("%s: %w", args[0], err), Next)
		}
		if err := out.Print(v, v.write); err != nil {
			return err
		}
		if failed := v.Count(abitest.Failed); failed > 0 {
			return cli.Hint(fmt.Errorf("%s: %d of %d checks failed", args[0], failed, len(v.Checks)), Next)
		}
		if skipped := v.Count(abitest.Skipped); skipped > 0 {
			fmt.Fprintf(std.Err, "the module passed all checks that ran: %d of %d checks were skipped for the reasons above; set payloads that it accepts with --samples\n", skipped, len(v.Checks))
			return nil
		}
		fmt.Fprintln(std.Err, "the module conforms to the ABI")
		return nil
	})
	c.Long = "Validates, compiles and starts the module as a node does, and then runs the conformance suite: it sends commands, replays the " +
		"events in other instances with different clocks, seeds and batches, and requires the same state byte for byte."
	c.Flags().StringVar(&samples, "samples", "", "JSON `file` with payloads to send: {TYPE: {COMMAND or QUERY: [PAYLOAD, ...]}}; unset generates them from the schemas or guesses them")
	c.Flags().Uint64Var(&seed, "seed", 1, "seed of all random choices, a `number`; the same seed repeats the same run")
	out = cli.AddOutput(c, std)
	return c
}

// ReadSamples reads a file of payloads: an object of types, each of which is an
// object of commands and queries with lists of payloads.
func ReadSamples(path string) (abitest.Samples, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]map[string][]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, cli.Hint(fmt.Errorf("%s: %w", path, err), `Its format is {"counter":{"add":[{"amount":1}]}}.`)
	}
	samples := abitest.Samples{}
	for entityType, names := range file {
		samples[entityType] = map[string][][]byte{}
		for name, payloads := range names {
			for _, p := range payloads {
				samples[entityType][name] = append(samples[entityType][name], p)
			}
		}
	}
	return samples, nil
}
