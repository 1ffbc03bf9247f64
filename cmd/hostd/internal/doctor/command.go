package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Exit codes in addition to the codes that all commands have.
const (
	exitWarning  = 3
	exitCritical = 4
)

// report is the output of the command.
type report struct {
	Findings []Finding `json:"findings"`
	Gaps     []Gap     `json:"notChecked"`
	nodes    int
}

// New returns the command. local returns the findings about the node of a
// configuration file on this machine, and what could not be looked at.
func New(std cli.Stdio, local func(file string) ([]Finding, []Gap, error)) *cobra.Command {
	var out *cli.Output
	var remote *cli.Remote
	var file string
	c := cli.Leaf("doctor", "Diagnose a cluster and its nodes, and print the commands that fix each problem", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		r := report{Findings: []Finding{}, Gaps: []Gap{}}
		if file != "" {
			found, gaps, err := local(file)
			if err != nil {
				return cli.Usage(err)
			}
			r.Findings, r.Gaps = append(r.Findings, found...), append(r.Gaps, gaps...)
		}
		if err := r.look(ctx, std, remote); err != nil {
			return err
		}
		r.Findings = sorted(r.Findings)
		if err := out.Print(r, r.write); err != nil {
			return err
		}
		switch {
		case len(r.Findings) == 0:
			return nil
		case worst(r.Findings) == Critical:
			return &cli.ExitError{Code: exitCritical}
		case worst(r.Findings) == Warning:
			return &cli.ExitError{Code: exitWarning}
		}
		return nil
	})
	c.Long = "Checks the cluster and each node: whether it is reachable and ready, its certificates, clock, release, disk, memory and file descriptors, " +
		"shards without a leader or a majority, operations that do not finish, quarantined entities, dead letters and rollouts that are stuck. " +
		"Every finding has a severity and the commands that fix it. With --config it also checks the node of that configuration on this machine, as 'serve --check' does. " +
		"It changes nothing, and lists what did not answer within --timeout as not checked. The exit code is 0 if nothing is wrong, 3 if the worst finding is a warning, and 4 if one is critical."
	c.Flags().StringVar(&file, "config", "", "also check the node on this machine that runs, or is to run, with this configuration `file`")
	remote = cli.AddRemote(c)
	cli.SetTimeout(c, 10*time.Second)
	out = cli.AddOutput(c, std)
	return c
}

// look adds the findings about the cluster. That no node answers is a finding,
// not an error.
func (r *report) look(ctx context.Context, std cli.Stdio, remote *cli.Remote) error {
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	ends := time.Now().Add(max(remote.Timeout/2, remote.Timeout-nodePatience-time.Second))
	opening, opened := context.WithDeadline(ctx, ends)
	defer opened()
	s, err := remote.Open(opening, std)
	if usage := (*cli.UsageError)(nil); errors.As(err, &usage) {
		return err
	}
	if err == nil {
		defer s.Close()
		var known *facts
		if known, err = gather(ctx, s, time.Until(ends), bases(remote), remote.HTTPClient()); err == nil {
			r.nodes = len(known.Nodes)
			r.Findings, r.Gaps = append(r.Findings, diagnose(known)...), append(r.Gaps, known.Gaps...)
			return nil
		}
	}
	f := Finding{ID: "cluster-unreachable", Severity: Critical, Subject: "cluster", Problem: cli.Clean(err.Error()), Doc: docMonitor + "#health-checks", Mend: []string{}}
	if next := cli.NextStep(err); next != "" {
		f.Mend = append(f.Mend, next)
	}
	r.Findings = append(r.Findings, f)
	return nil
}

// bases returns the function that makes the URL of a member's address, with the
// scheme that the command uses.
func bases(remote *cli.Remote) func(address string) string {
	scheme := "http://"
	if remote.Files != (cli.TLSFiles{}) || strings.HasPrefix(remote.URLs()[0], "https://") {
		scheme = "https://"
	}
	return func(address string) string { return scheme + address }
}

func (r report) write(w io.Writer) {
	paint := cli.NewPaint(w)
	for _, f := range r.Findings {
		head := strings.ToUpper(string(f.Severity))
		switch f.Severity {
		case Critical:
			head = paint.Bad(head)
		case Warning:
			head = paint.Warn(head)
		default:
			head = paint.Note(head)
		}
		fmt.Fprintf(w, "%s  %s: %s (%s)\n", head, f.Subject, f.Problem, f.ID)
		for _, m := range f.Mend {
			fmt.Fprintf(w, "    %s\n", m)
		}
		if f.Doc != "" {
			fmt.Fprintf(w, "    %s\n", paint.Note("see "+f.Doc))
		}
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(w, "not checked: %s: %s\n", g.What, g.Why)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintf(w, "found no problems on the %d nodes\n", r.nodes)
	}
}
