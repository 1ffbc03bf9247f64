package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/host"
)

func newJournal(std cli.Stdio) *cobra.Command {
	return cli.Group("journal", "Export the entities of a cluster to a file, and import them into an empty cluster",
		newJournalExport(std), newJournalImport(std), newJournalVerify(std))
}

// transferTime is the default timeout of an export or import.
const transferTime = 24 * time.Hour

type archiveView struct {
	File        string `json:"file"`
	Bytes       int64  `json:"bytes"`
	Entities    uint64 `json:"entities"`
	Shards      uint64 `json:"shards"`
	Modules     uint64 `json:"modules"`
	Timers      uint64 `json:"timers"`
	Messages    uint64 `json:"messages"`
	DeadLetters uint64 `json:"deadLetters"`
	Digest      string `json:"digest"`
}

func printArchive(out *cli.Output, file string, sum host.ArchiveSummary) error {
	v := archiveView{file, sum.Bytes, sum.Entities, sum.Shards, sum.Modules, sum.Timers, sum.Sends, sum.DeadLetters, sum.Digest}
	return out.Print(v, func(w io.Writer) {
		fmt.Fprintf(w, "%s: %d bytes, %d entities of %d shards, %d timers, %d undelivered messages, %d dead letters, %d modules, digest %s\n",
			v.File, v.Bytes, v.Entities, v.Shards, v.Timers, v.Messages, v.DeadLetters, v.Modules, v.Digest)
	})
}

// progress reports once a second on stderr how many bytes have been processed.
type progress struct {
	what  string
	total int64 // 0 if unknown
	done  atomic.Int64
	stop  chan struct{}
	gone  chan struct{}
}

func startProgress(std cli.Stdio, what string, total int64) *progress {
	p := &progress{what: what, total: total, stop: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Fprintln(std.Err, p.line())
			case <-p.stop:
				return
			}
		}
	}()
	return p
}

func (p *progress) line() string {
	done := p.done.Load()
	if p.total == 0 {
		return fmt.Sprintf("%s: %d MiB", p.what, done>>20)
	}
	return fmt.Sprintf("%s: %d of %d MiB, %d %%", p.what, done>>20, p.total>>20, 100*done/p.total)
}

func (p *progress) add(n int64) { p.done.Add(n) }

func (p *progress) end() {
	close(p.stop)
	<-p.gone
}

// counted is a stream that counts its bytes in a progress.
type counted struct {
	r io.Reader
	w io.Writer
	p *progress
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.p.add(int64(n))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.p.add(int64(n))
	return n, err
}

func newJournalExport(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var force bool
	c := cli.Talk(std, "export FILE", "Export the entities of the running cluster to a file, or to standard output (-)", 1, 1, func(ctx context.Context, s *cli.Session, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, s.Timeout)
		defer cancel()
		if args[0] == stdStream {
			return exportStream(ctx, std, s.Export)
		}
		sum, err := exportTo(ctx, std, s.Export, args[0])
		if err != nil {
			return err
		}
		return printArchive(out, args[0], sum)
	})
	c.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	out = cli.AddOutput(c, std)
	cli.SetTimeout(c, transferTime)
	cli.Before(c, func(args []string) error {
		if _, err := os.Lstat(args[0]); err == nil && !force && args[0] != stdStream {
			return cli.Usagef("%s already exists; --force replaces it", args[0])
		}
		return nil
	})
	return c
}

// exportTo writes a temporary file, verifies it, and renames it to its final
// name once it is durable.
func exportTo(ctx context.Context, std cli.Stdio, export func(context.Context, io.Writer) error, name string) (sum host.ArchiveSummary, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return sum, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	p := startProgress(std, "exported", 0)
	err = export(ctx, counted{w: f, p: p})
	p.end()
	if err != nil {
		return sum, err
	}
	if err := f.Sync(); err != nil {
		return sum, err
	}
	return verifyFile(std, f)
}

// verifyFile checks a file from its beginning.
func verifyFile(std cli.Stdio, f *os.File) (sum host.ArchiveSummary, err error) {
	info, err := f.Stat()
	if err != nil {
		return sum, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return sum, err
	}
	p := startProgress(std, "verified", info.Size())
	defer p.end()
	return host.VerifyArchive(f, p.add)
}

func newJournalVerify(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	c := cli.Leaf("verify FILE", "Verify every checksum and every entity's hash chain in an export file", 1, 1, func(_ context.Context, _ *cobra.Command, args []string) error {
		f, err := openArchive(std, args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		sum, err := verifyFile(std, f)
		if err != nil {
			return fmt.Errorf("verify: %w", err)
		}
		return printArchive(out, args[0], sum)
	})
	out = cli.AddOutput(c, std)
	return c
}

func newJournalImport(std cli.Stdio) *cobra.Command {
	var r *cli.Remote
	var withSecurityRoles bool
	var out *cli.Output
	c := cli.Leaf("import FILE", "Import an export file, or standard input (-), into an empty cluster", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		f, err := openArchive(std, args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		sum, err := verifyFile(std, f) // before anything is written
		if err != nil {
			return fmt.Errorf("import: nothing was imported: %w", err)
		}
		c, err := r.Dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.Timeout)
		defer cancel()
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		p := startProgress(std, "imported", sum.Bytes)
		take := c.Import
		if withSecurityRoles {
			take = c.ImportWithSecurityRoles
		}
		got, err := take(ctx, counted{r: f, p: p})
		p.end()
		if client.CodeOf(err) == connect.CodeFailedPrecondition {
			return fmt.Errorf("import: %w", err)
		}
		if err != nil {
			return cli.Hint(fmt.Errorf("import: %w", err), "Repeat the import with the same file to continue it; a different file needs a different empty cluster.")
		}
		if got.Digest != sum.Digest {
			return fmt.Errorf("import: the cluster already has a different import, with digest %s", got.Digest)
		}
		for _, entityType := range got.PausedRollouts {
			fmt.Fprintf(std.Err, "A rollout of %[1]s was restored and is paused: hostd module rollout %[1]s\n", entityType)
		}
		for _, what := range got.Omitted {
			why := "it allows the verb security"
			if strings.HasPrefix(what, "setting ") {
				why = "'hostd setting put' would reject it"
			}
			fmt.Fprintf(std.Err, "Not imported, because %s: %s\n", why, cli.Clean(what))
		}
		return printArchive(out, args[0], sum)
	})
	c.Flags().BoolVar(&withSecurityRoles, "with-security-roles", false, "also import roles that allow the verb security, and their bindings; the creator of the file may have included themselves")
	r, out = cli.AddRemote(c), cli.AddOutput(c, std)
	cli.SetTimeout(c, transferTime)
	return c
}
