package devcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/console"
)

// MaxNodes limits the nodes on one machine.
const MaxNodes = 16

// devOptions are the flags of dev.
type devOptions struct {
	nodes    int
	data     string
	listen   string
	clean    bool
	modules  []string
	ports    string
	shards   uint32
	logLevel string
	tls      bool
	auth     string
	origins  []string
}

// NewDev returns the command that runs nodes for development.
func NewDev(std cli.Stdio) *cobra.Command {
	var o devOptions
	c := cli.Leaf("dev", "Run nodes on this machine for development", 0, 1, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if o.nodes < 1 {
			return cli.Usagef("--nodes must be at least 1, got %d", o.nodes)
		}
		if o.nodes > MaxNodes {
			return cli.Usagef("--nodes must be at most %[2]d on one machine, got %[1]d", o.nodes, MaxNodes)
		}
		if o.auth != string(config.AuthNone) && o.auth != string(config.AuthRequired) {
			return cli.Usagef("--auth must be %[2]s or %[3]s, got %[1]q", o.auth, config.AuthNone, config.AuthRequired)
		}
		return dev(ctx, std, o)
	})
	cli.Before(c, func(args []string) error {
		if err := o.takeMode(c.Flags().Changed("auth"), args); err != nil {
			return err
		}
		for _, m := range o.modules {
			if isDir(m) {
				if _, err := guestbuild.Find(m); err != nil {
					return cli.Usagef("--module: %v", err)
				}
				continue
			}
			if about, err := os.Stat(m); err == nil && !about.Mode().IsRegular() {
				continue // a pipe can be read only once
			}
			wasm, err := cli.ReadModule(m)
			if err != nil {
				return err
			}
			if !bytes.HasPrefix(wasm, []byte("\x00asm")) {
				return cli.Usagef("--module: %s is not a WebAssembly module: give a .wasm file or the directory of a project", m)
			}
		}
		return nil
	})
	c.Long = "Runs nodes until interrupted, each in a process of this program and with full durability. " +
		"The next start finds their data again, unless --clean is set.\n\n" +
		"If --module names the directory of a project, dev rebuilds and activates it whenever its sources change. If the build, the conformance suite or the check against stored data fails, dev " +
		"reports it and the previous module continues to serve. It prints the log lines and the errors of the project's guests. " +
		"Press Enter to rebuild, or to restart nodes that have exited."
	f := c.Flags()
	f.IntVar(&o.nodes, "nodes", 1, "`number` of nodes to run")
	f.StringVar(&o.data, "data", "hostd-dev", "`directory` for data, with one subdirectory per node")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7070", "`address` of the first node, HOST:PORT; the other nodes use the next free ports")
	f.BoolVar(&o.clean, "clean", false, "remove the data of earlier runs first")
	f.StringArrayVar(&o.modules, "module", nil, "`file` of a module to activate, or directory of a project to rebuild and activate whenever its sources change; may be repeated")
	f.StringVar(&o.ports, "ports-file", "", "`file` to write the nodes' addresses and process ids to, in JSON, once all nodes are ready")
	f.Uint32Var(&o.shards, "shards", 0, "`number` of data shards of a new cluster; 0 means the default of serve")
	f.BoolVar(&o.tls, "tls", false, "require TLS, with certificates that are created in the directory tls below --data")
	f.StringVar(&o.auth, "auth", string(config.AuthNone), "authentication of callers: `mode` none, or required, which is also the mode if only --auth is given; required creates a token in the file token below --data, which commands find in the context "+devContext)
	f.Lookup("auth").NoOptDefVal = string(config.AuthRequired)
	f.StringSliceVar(&o.origins, "allow-origins", nil, "comma-separated `origins` whose web pages may call the nodes, such as http://127.0.0.1:5173")
	cli.AddConfirm(c, std, func([]string) string {
		if dirs, err := nodeDirs(o.data); !o.clean || err != nil || len(dirs) == 0 {
			return ""
		}
		return fmt.Sprintf("Remove the data of earlier runs in %s?", o.data)
	})
	f.StringVar(&o.logLevel, "log-level", "warn", "minimum `level` of the log lines that nodes write to standard error: debug, info, warn or error")
	return c
}

// takeMode accepts an argument as the mode of --auth. The flag has an optional
// value, so 'hostd dev --auth required' leaves the word as an argument.
func (o *devOptions) takeMode(named bool, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case named && o.auth == string(config.AuthRequired):
		o.auth = args[0]
		return nil
	}
	return cli.Usagef("unexpected argument %q: set a module or a project with --module", args[0])
}

func dev(ctx context.Context, std cli.Stdio, o devOptions) error {
	if o.clean {
		if err := cleanData(o.data); err != nil {
			return err
		}
	}
	if o.ports != "" {
		if err := os.Remove(o.ports); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("ports file: %w", err)
		}
	}
	began := time.Now()
	flags := []string{"--admin", "full", "--expose-guest-errors", "--log-level", o.logLevel, "--log-format", "text"}
	if o.shards > 0 {
		flags = append(flags, "--shards", fmt.Sprint(o.shards))
	}
	if len(o.origins) > 0 {
		flags = append(flags, "--allow-origins", strings.Join(o.origins, ","))
	}
	fmt.Fprintf(std.Err, "starting %s\n", Names(o.nodes))
	c, err := Start(ctx, Options{Nodes: o.nodes, Data: o.data, Listen: o.listen, Flags: flags, Stderr: std.Err, TLS: o.tls, Auth: o.auth == string(config.AuthRequired)})
	if err != nil {
		return duringStart(ctx, err)
	}
	run := &devRun{std: std, options: o, cluster: c}
	if err = run.ready(ctx, began); err != nil {
		err = duringStart(ctx, err)
	} else {
		err = run.run(ctx)
	}
	return errors.Join(err, run.close(), c.Stop())
}

// duringStart returns why the nodes did not become ready. If ctx ended, that is
// the only reason.
func duringStart(ctx context.Context, err error) error {
	if ctx.Err() == nil || !cli.IsCanceled(err) {
		return err
	}
	return cli.Hint(errors.New("interrupted before the nodes were ready"), "The nodes' data is kept: start again, or remove it with --clean.")
}

// Names formats the number of nodes for people.
func Names(n int) string {
	if n == 1 {
		return "n1"
	}
	return fmt.Sprintf("n1 to n%d", n)
}

// stopNode stops a node that has not ended by itself.
func stopNode(n *Node) error {
	select {
	case <-n.Done:
		return nil
	default:
		return n.stop(stopPatience)
	}
}

// ready makes the nodes serve the modules and prints their addresses.
func (d *devRun) ready(ctx context.Context, began time.Time) error {
	std, cluster := d.std, d.cluster
	infos := cluster.infos()
	for _, module := range d.options.modules {
		serve := func() error { return pushFile(ctx, std, cluster, module) }
		if isDir(module) {
			serve = func() error { return d.open(ctx, module) }
		}
		if err := serve(); err != nil {
			return err
		}
	}
	if err := d.printPorts(); err != nil {
		return err
	}
	cli.Table(std.Out, "NODE\tAPI\tPID\tDATA", func(row func(...any)) {
		for _, i := range infos {
			row(i.NodeID, i.API, i.PID, i.DataDir)
		}
	})
	if cluster.Token != "" {
		if err := cluster.use(); err != nil {
			return fmt.Errorf("context %s: %w", devContext, err)
		}
		fmt.Fprintf(std.Err, "commands use the context %s to reach them; its token is in %s\n", devContext, cluster.TokenFile)
	} else if f := cluster.TLS(); f != nil {
		fmt.Fprintf(std.Err, "commands reach them with\n  export HOSTD_ADDR=%s HOSTD_CACERT=%s HOSTD_CERT=%s HOSTD_KEY=%s\n", infos[0].API, shellWord(f.CACert), shellWord(f.Cert), shellWord(f.Key))
	}
	fmt.Fprintf(std.Err, "the console is at %s\n", consoleLink(infos[0].API, cluster.Token, cli.OnTerminal(std.Err)))
	how := "Ctrl-C stops"
	if len(d.lives) > 0 && cli.OnTerminal(std.In) {
		how += ", Enter rebuilds"
	}
	fmt.Fprintf(std.Err, "ready after %s; %s\n", time.Since(began).Round(time.Millisecond), how)
	return nil
}

// consoleLink returns the URL of a node's console. On a terminal it contains
// the token, if there is one, to sign in. Other output may be stored, so the
// URL has no token then.
func consoleLink(api, token string, onTerminal bool) string {
	link := api + console.Prefix
	if token != "" && onTerminal {
		link += "#token=" + url.QueryEscape(token)
	}
	return link
}

// shellWord quotes a path for the shell.
func shellWord(path string) string {
	if strings.Trim(path, "/._-abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// isDir reports whether the argument for a module is a project directory.
func isDir(path string) bool {
	about, err := os.Stat(path)
	return err == nil && about.IsDir()
}

func pushFile(ctx context.Context, std cli.Stdio, cluster *Cluster, file string) error {
	wasm, err := cli.ReadModule(file)
	if err != nil {
		return err
	}
	c, err := cluster.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	up, err := c.Upload(ctx, wasm, true)
	if err != nil {
		return fmt.Errorf("push %s: %w", file, err)
	}
	fmt.Fprintf(std.Err, "%s serves %s\n", filepath.Base(file), strings.Join(up.EntityTypes, ", "))
	return nil
}

// nodeDirs returns the nodes' directories that dev created.
func nodeDirs(data string) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(data, "n[0-9]*", "node.json"))
	for i, marker := range dirs {
		dirs[i] = filepath.Dir(marker)
	}
	return dirs, err
}

// cleanData removes the nodes' directories that dev created, and nothing else.
func cleanData(data string) error {
	dirs, err := nodeDirs(data)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("clean: %w", err)
		}
	}
	return nil
}
