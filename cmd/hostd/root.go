package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/bench"
	"github.com/hostd/hostd/cmd/hostd/internal/cases"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/clientgen"
	"github.com/hostd/hostd/cmd/hostd/internal/credential"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging"
	"github.com/hostd/hostd/cmd/hostd/internal/devcluster"
	"github.com/hostd/hostd/cmd/hostd/internal/project"
	"github.com/hostd/hostd/cmd/hostd/internal/roles"
	"github.com/hostd/hostd/cmd/hostd/internal/top"
	"github.com/hostd/hostd/cmd/hostd/internal/workflows"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/telemetry"
)

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, std cli.Stdio) int {
	return cli.Run(ctx, newRoot(std), args, std)
}

func newRoot(std cli.Stdio) *cobra.Command {
	root := cli.Group("hostd", "Run durable entities written in WebAssembly",
		newVersion(std), newLicenses(std), newCommands(std), project.NewNew(std), project.NewBuild(std), cases.NewCommand(std, project.Builder(std.Err)), devcluster.NewDev(std), devcluster.NewDemo(std), newServe(std),
		newModule(std), newEntity(std), workflows.NewCommand(std), newCluster(std), newShard(std), newNode(std), newSetting(std), newType(std), newJournal(std), newCert(std), newAudit(std), credential.NewToken(std), credential.NewContext(std), roles.NewRole(std), roles.NewBinding(std), roles.NewAuth(std),
		top.New(std), debugging.NewLogs(std), debugging.NewPull(std), debugging.NewStep(std), newDoctor(std), bench.NewCommand(std), newVerify(std), newRecover(std), newCompile(std), clientgen.NewClient(std, fullDigest))
	root.Long = "hostd runs entities: durable, event-sourced objects whose code is a WebAssembly module that you upload.\n\n" +
		"Start with 'hostd new NAME', which creates a project and prints the next steps.\n" +
		"'hostd dev' runs nodes on this machine, and 'hostd module push FILE.wasm' uploads a module to them."
	addVersionFlag(root, std)
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if err := unknownVariable(); err != nil {
			fmt.Fprintln(std.Err, "warning:", err)
		}
	}
	return root
}

// addVersionFlag gives root the flag --version. Cobra's own flag prints with a
// template, and templates call methods by name: a program that executes one
// keeps every exported method of every library, 10 MB more.
func addVersionFlag(root *cobra.Command, std cli.Stdio) {
	var version bool
	root.Flags().BoolVarP(&version, "version", "v", false, "print the release of this program")
	help := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if !version || len(args) > 0 {
			return help(c, args)
		}
		_, err := fmt.Fprintln(std.Out, versionText(telemetry.ReadBuild()))
		return err
	}
}

// configVariable is the environment variable with the configuration file of a
// node, like --config.
const configVariable = "HOSTD_CONFIG"

// unknownVariable returns an error for a HOSTD_* variable that no command
// reads.
func unknownVariable() error {
	known := append(slices.Clone(cli.Variables), configVariable)
	shown := config.Default()
	for _, f := range shown.Fields() {
		known = append(known, config.EnvName(f.Name))
	}
	return cli.CheckEnvironment(os.Environ(), known)
}
